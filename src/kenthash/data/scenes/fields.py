"""Typed access to a mapping that came out of a YAML file; every complaint is one line that says where.

`Fields("classes.yaml", {...}).sub("classes").sub("dog").number("size")` is a float or a DataError that reads
"classes.yaml: classes: dog: size: must be a number of at least 0, not 'big'".
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

from kenthash.errors import DataError

COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


class Fields:
    def __init__(self, where: str, content: Any) -> None:
        if not isinstance(content, dict):
            raise DataError(f"{where}: must be a mapping of names to values, not {type(content).__name__}")
        self.where = where
        self.content = {str(key): value for key, value in content.items()}

    def wrong(self, key: str, what: str) -> DataError:
        return DataError(f"{self.where}: {key}: {what}")

    def names(self) -> list[str]:
        return list(self.content)

    def has(self, key: str) -> bool:
        return key in self.content

    def only(self, allowed: Collection[str]) -> None:
        for key in self.content:
            if key not in allowed:
                raise self.wrong(key, f"unknown name; known are {', '.join(sorted(allowed))}")

    def among(self, key: str, values: Sequence[str], known: Collection[str]) -> None:
        for value in values:
            if value not in known:
                raise self.wrong(key, f"{value!r} is not one of {', '.join(sorted(known))}")

    def over(self, other: "Fields") -> "Fields":
        """These fields, and those of `other` that are not here."""
        return Fields(self.where, {**other.content, **self.content})

    def get(self, key: str) -> Any:
        if key not in self.content:
            raise self.wrong(key, "is missing")
        return self.content[key]

    def sub(self, key: str) -> "Fields":
        return Fields(f"{self.where}: {key}", self.get(key))

    def parts(self, key: str, default: tuple[()] | None = None) -> list["Fields"]:
        if default is not None and not self.has(key):
            return []
        return [Fields(f"{self.where}: {key} {i + 1}", item) for i, item in enumerate(self._list(key))]

    def text(self, key: str, default: str | None = None) -> str:
        if default is not None and not self.has(key):
            return default
        value = self.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, f"must be a text, not {value!r}")
        return value

    def texts(self, key: str, default: tuple[()] | None = None) -> tuple[str, ...]:
        """A list of texts; with a default it may be missing or empty."""
        if default is not None and not self.content.get(key):
            return default
        values = self._list(key)
        for value in values:
            # An OpenMoji code of digits alone (2708) is read as a number.
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise self.wrong(key, f"must be a list of texts, but holds {value!r}")
        return tuple(str(value) for value in values)

    def flag(self, key: str, default: bool) -> bool:
        value = self.content.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"must be true or false, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = default if default is not None and not self.has(key) else self.get(key)
        return self._number(key, value)

    def numbers(self, key: str) -> tuple[float, ...]:
        return tuple(self._number(key, value) for value in self._list(key))

    def range(self, key: str, most: float = 1.0) -> tuple[float, float]:
        values = self.numbers(key)
        if len(values) != 2 or not values[0] <= values[1] <= most:
            raise self.wrong(key, f"must be two numbers, the smaller first, up to {most:g}, not {list(values)}")
        return values[0], values[1]

    def shares(self, key: str, known: Collection[str]) -> dict[str, float]:
        part = self.sub(key)
        part.only(known)
        return {name: part.number(name) for name in part.names()}

    def pair(self, key: str) -> tuple[str, str]:
        return self._pair(key, self.get(key))

    def colours(self, key: str) -> tuple[str, ...]:
        for value in self.texts(key):
            if not COLOUR.fullmatch(value):
                raise self.wrong(key, f"must be colours like '#92D3F5', not {value!r}")
        return self.texts(key)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        return tuple(self._pair(key, value) for value in self._list(key))

    def _pair(self, key: str, value: Any) -> tuple[str, str]:
        if not isinstance(value, list) or len(value) != 2 or not all(COLOUR.fullmatch(str(v)) for v in value):
            raise self.wrong(key, f"must be two colours like '#92D3F5', not {value!r}")
        return value[0], value[1]

    def _list(self, key: str) -> list[Any]:
        value = self.get(key)
        if not isinstance(value, list) or not value:
            raise self.wrong(key, f"must be a list with something in it, not {value!r}")
        return value

    def _number(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise self.wrong(key, f"must be a number of at least 0, not {value!r}")
        return float(value)
