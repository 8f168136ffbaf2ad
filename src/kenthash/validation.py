"""Settings that come from outside, from YAML or the command line, to the dataclass that they fill.

pydantic checks them by the dataclass's own type hints: strictly (no text for a number), and no unknown names. The first
fault becomes one line that names the setting, its value and what it must be.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from reprlib import repr as shortened
from typing import Any, TypeVar, cast, get_args, get_type_hints

import pydantic
from pydantic import ConfigDict, ValidationError

from kenthash.errors import UsageError

Settings = TypeVar("Settings")

# What a value must be, by the type of pydantic's error.
WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "none_required": "null",
}


def checked(kind: type[Settings], values: Any, section: str = "", owner: str = "") -> Settings:
    """An instance of the dataclass `kind` from a mapping of names to `values`, with its defaults for the rest.

    Fields that are dataclasses are sections, given as mappings. In messages `section` stands before every name, and
    `owner` is whose settings they are.

    Example:

        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Rates:
        ...     heads: float = 0.001
        ...     proxies: float | None = None
        >>> checked(Rates, {"proxies": 0.02})
        Rates(heads=0.001, proxies=0.02)
        >>> checked(Rates, {"heads": "fast"}, "rates")
        Traceback (most recent call last):
        kenthash.errors.UsageError: rates.heads: 'fast' is not a number
    """
    hints = get_type_hints(kind)
    if not isinstance(values, dict):
        names = f"{owner}'s own settings" if owner else ", ".join(hints)
        raise UsageError(f"{section}: a section with {names}, not {shortened(values)}")
    prefix = f"{section}." if section else ""
    ready: dict[str, Any] = {}
    for name, value in values.items():
        hint = hints.get(name)
        is_section = is_dataclass(hint) and isinstance(hint, type)
        ready[str(name)] = checked(cast(Any, hint), value, f"{prefix}{name}") if is_section else value
    try:
        _model_of(cast(Any, kind))(**ready)
    except ValidationError as error:
        fault = error.errors()[0]
        cause = fault.get("ctx", {}).get("error")  # where the dataclass itself has refused its values
        raise (cause if isinstance(cause, UsageError) else UsageError(_line(fault, hints, prefix, owner))) from error
    return kind(**ready)


@cache
def _model_of(kind: Any) -> Callable[..., Any]:
    strictly = pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
    return strictly(kind)


def _line(fault: Mapping[str, Any], hints: dict[str, Any], prefix: str, owner: str) -> str:
    name, value, limits = str(fault["loc"][0]), shortened(fault["input"]), fault.get("ctx", {})
    where = prefix + ".".join(map(str, fault["loc"]))
    if fault["type"] == "unexpected_keyword_argument":
        near = difflib.get_close_matches(name, hints, n=1)
        advice = f"did you mean {prefix}{near[0]}?" if near else f"choose one of {', '.join(hints)}"
        return f"{where}: {f'{owner} has ' if owner else ''}no such setting, {advice}"
    or_null = " or null" if type(None) in get_args(hints[name]) else ""
    match fault["type"]:
        case "greater_than_equal":
            return f"{where}: {value} is too small, it must be {_limit(limits['ge'])} or more{or_null}"
        case "greater_than":
            return f"{where}: {value} is too small, it must be above {_limit(limits['gt'])}{or_null}"
        case "less_than_equal":
            return f"{where}: {value} is too large, it must be {_limit(limits['le'])} or less{or_null}"
        case "less_than":
            return f"{where}: {value} is too large, it must be below {_limit(limits['lt'])}{or_null}"
        case "literal_error":
            return f"{where}: {value} is not {limits['expected']}{or_null}"
        case kind if kind in WANTED:
            return f"{where}: {value} is not {WANTED[kind]}{or_null}"
    return f"{where}: {value}: {fault['msg'][:1].lower()}{fault['msg'][1:]}"


def _limit(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
