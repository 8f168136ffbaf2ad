"""Values that come from outside, against the type hints they should fit."""

from typing import Any, Literal, get_args, get_origin


def fits(value: Any, hint: Any) -> bool:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in args
    if origin is list:
        return isinstance(value, list) and all(fits(item, args[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, args[0]) and fits(v, args[1]) for k, v in value.items())
    if args:  # one or the other
        return any(fits(value, part) for part in args)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return hint is Any or isinstance(value, hint)


def describe(hint: Any) -> str:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin is list:
        return f"a list, each item {describe(args[0])}"
    if origin is dict:
        return f"a mapping, each value {describe(args[1])}"
    if args:
        return " or ".join(describe(part) for part in args)
    return "nothing" if hint is type(None) else f"a value of type {hint.__name__}"
