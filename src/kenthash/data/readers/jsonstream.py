"""The elements of large JSON arrays one by one.

The instance annotations of COCO are one JSON object of 450 MB whose polygons would need several gigabytes as Python
objects. Here a few megabytes of text are held at a time, and one array element at a time becomes an object.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from kenthash.errors import DataError
from kenthash.files import reading
from kenthash.progress import bar

CHUNK = 1 << 20  # characters read at once
MAX_ELEMENT = 1 << 26  # characters one element may have: none of COCO's comes near 1 MB

_DECODER = json.JSONDecoder()
_SPACE = " \t\n\r"
_AFTER = frozenset(_SPACE + ",:]}")


def stream_object(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (key, element) for each element of each array, and (key, value) for each other value, of a JSON object."""
    with (
        reading(path),
        path.open(encoding="utf-8-sig") as stream,
        bar(path.stat().st_size, path.name, "characters") as progress,
    ):
        yield from _Text(path, stream, progress.update).members()


class _Text:
    """The part of a text that is in memory: `buffer` from `at` on has not been used."""

    def __init__(self, path: Path, stream: IO[str], advance: Callable[[int], object]) -> None:
        self.path, self.stream, self.advance = path, stream, advance
        self.buffer, self.at, self.dropped = "", 0, 0

    def members(self) -> Iterator[tuple[str, Any]]:
        self.expect("{")
        if self.peek() == "}":
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise self.error("a key was expected")
            self.expect(":")
            if self.peek() == "[":
                yield from ((key, element) for element in self.elements())
            else:
                yield key, self.value()
            if self.expect(",}") == "}":
                return

    def elements(self) -> Iterator[Any]:
        self.expect("[")
        if self.peek() == "]":
            self.at += 1
            return
        while True:
            yield self.value()
            if self.expect(",]") == "]":
                return

    def value(self) -> Any:
        """Decode the value that starts here, reading on for as long as it may merely be cut off."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.buffer, self.at)
                whole = self.buffer[end : end + 1] in _AFTER  # else a number may go on: 0 before .5, 1 before e9
            except (ValueError, RecursionError) as error:
                if not self.fill():
                    raise self.error("broken or cut off") from error
                continue
            if whole or not self.fill():
                self.at = end
                return value

    def peek(self) -> str:
        """The next character that is not white space; nothing at the end of the file."""
        while True:
            while self.at < len(self.buffer) and self.buffer[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.buffer):
                return self.buffer[self.at]
            if not self.fill():
                return ""

    def expect(self, characters: str) -> str:
        found = self.peek()
        if not found or found not in characters:
            raise self.error(f"expected {' or '.join(characters)}, found {found or 'the end'}")
        self.at += 1
        return found

    def fill(self) -> bool:
        if len(self.buffer) - self.at > MAX_ELEMENT:
            raise self.error("one element is too large")
        chunk = self.stream.read(CHUNK)
        self.advance(len(chunk))
        self.dropped += self.at
        self.buffer, self.at = self.buffer[self.at :] + chunk, 0
        return bool(chunk)

    def error(self, what: str) -> DataError:
        return DataError(f"{self.path}: not valid JSON: {what} at character {self.dropped + self.at}")
