"""Values that come from outside, against the type hints they should fit."""

from typing import Any, Literal, get_args, get_origin


def fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if args := get_args(hint):
        return any(fits(value, part) for part in args)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if args := get_args(hint):
        return " or ".join(describe(part) for part in args)
    return "nothing" if hint is type(None) else f"a value of type {hint.__name__}"
