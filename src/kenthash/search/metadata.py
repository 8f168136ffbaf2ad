"""What an index can keep of an item: its id and its metadata, checked before any engine sees them.

Metadata come as objects, or as JSON texts, as files of codes have them (`JsonMetadata`). One by one, parsing, checking
and writing an object takes longer than SQLite takes to insert the item. Together, texts are parsed by one call and
checked key by key; and where they are written as kenthash writes them, a local index keeps them as they are.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, overload

import numpy as np

from kenthash.errors import DataError, UsageError
from kenthash.files import HALF
from kenthash.search.engine import Metadata
from kenthash.search.filters import UNENCODABLE, Filter, keys_of

MAX_ID = 1024  # characters
MAX_KEY = 128  # characters of a metadata key
MAX_METADATA = 1 << 16  # bytes of an item's metadata as JSON
CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")  # also line ends and surrogates
FORBIDDEN = re.compile(CONTROL.pattern + r'|["\\]')  # in a key
# Kept by `index add` for itself. Who may ask but not look at the files (a request, an assistant) neither sees nor sets
# them, and does not filter by them: a path could be read out, one comparison after another.
PRIVATE_KEYS = ("path", "size", "mtime", "digest", "fingerprint")

_write = json.JSONEncoder(ensure_ascii=False).encode


def public(metadata: Metadata) -> Metadata:
    """Metadata without private keys."""
    return {key: value for key, value in metadata.items() if key not in PRIVATE_KEYS}


def check_public(where: Filter) -> None:
    """Refuse a filter by private keys."""
    if private := sorted(keys_of(where) & set(PRIVATE_KEYS)):
        raise UsageError(f"filter: {private[0]} describes a file where the index is, by which nobody can filter here")


def check_id(name: str) -> None:
    if HALF.search(name):
        raise DataError(f"id {name[:60]!r}: is not UTF-8, as an id must be")
    if not 0 < len(name) <= MAX_ID or CONTROL.search(name):
        raise DataError(f"id {name[:60]!r}: must have 1 to {MAX_ID:,} characters, no control characters among them")


def check_metadata(name: str, entry: Mapping[str, object]) -> None:
    """Refuse metadata that not every engine can keep."""
    if not isinstance(entry, dict):
        raise DataError(f"metadata of {name!r}: must be a dict, not {type(entry).__name__}")
    size = 2
    for key, value in entry.items():
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or FORBIDDEN.search(key):
            raise DataError(
                f"metadata of {name!r}: key {key!r} must have 1 to {MAX_KEY} characters, "
                "no double quote, backslash or control character among them"
            )
        size += len(key) + 6 + _check_value(name, key, value)
    # Only metadata that may be too large are measured exactly: a character takes at most six bytes in JSON.
    if 6 * size > MAX_METADATA and len(json.dumps(entry, ensure_ascii=False).encode()) > MAX_METADATA:
        raise DataError(f"metadata of {name!r}: more than {MAX_METADATA // 1024} KiB as JSON")


def _check_value(name: str, key: str, value: object) -> int:
    """The approximate size of a value that can be kept; others are refused."""
    if isinstance(value, str):
        if UNENCODABLE.search(value):
            raise DataError(f"metadata of {name!r}: the text of {key!r} holds characters that cannot be kept")
        return len(value)
    if value is None or isinstance(value, bool):
        return 5
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return 20
    if isinstance(value, float) and np.isfinite(value):
        return 24
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return sum(4 + _check_value(name, key, text) for text in value)
    raise DataError(
        f"metadata of {name!r}: {key!r} is {str(value)[:40]!r}; "
        "it must be text, a finite number of 64 bits, true, false, null or a list of strings"
    )


class JsonMetadata(Sequence[Metadata]):
    """Metadata that an index can keep, with their texts.

    Example:

        >>> JsonMetadata(["a.jpg"], ['{"year":2024,"year":2025}']).texts
        ['{"year": 2025}']
    """

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        """Metadata of the items `ids`, which messages name. What cannot be kept is a DataError."""
        together = _parse_together(texts)
        if together is not None and _is_kept(together) and max(map(len, texts), default=0) <= MAX_METADATA // 4:
            self.entries = together
        else:
            self.entries = [
                parse_metadata(f"metadata of {name!r}", text) for name, text in zip(ids, texts, strict=True)
            ]
            for name, entry in zip(ids, self.entries, strict=True):
                check_metadata(name, entry)
        # Not so where a key is there twice, of which Python takes the last and SQLite the first.
        as_written = _write(self.entries) == f"[{', '.join(texts)}]"
        self.texts: Sequence[str] = texts if as_written else list(map(_write, self.entries))

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, place: int) -> Metadata: ...
    @overload
    def __getitem__(self, place: slice) -> list[Metadata]: ...
    def __getitem__(self, place: int | slice) -> Metadata | list[Metadata]:
        return self.entries[place]

    def __iter__(self) -> Iterator[Metadata]:
        return iter(self.entries)


def _parse_together(texts: Sequence[str]) -> list[Metadata] | None:
    """All objects, or None where some text may be no object.

    A text that ends within a string would make the line break part of it, which JSON does not allow; one that ends
    within a list or an object would give a value that `_is_kept` refuses. So the n-th object is that of the n-th text.
    """
    if not all(text[:1] == "{" and text[-1:] == "}" for text in texts):
        return None
    try:
        entries: list[Any] = json.loads("[" + ",\n".join(texts) + "]")
    except (ValueError, RecursionError):
        return None
    return entries if len(entries) == len(texts) and set(map(type, entries)) <= {dict} else None


def _is_kept(entries: list[Metadata]) -> bool:
    """Whether an index can certainly keep all of these, by a look at each key's values together."""
    shapes = set(map(tuple, entries))
    if len(shapes) > 64:  # looked at one by one
        return False
    for key in set(chain.from_iterable(shapes)):
        values = [entry[key] for entry in entries] if len(shapes) == 1 else [e[key] for e in entries if key in e]
        if not _is_kept_value(values):
            return False
    return all(_is_kept_shape(shape) for shape in shapes)


def _is_kept_shape(keys: tuple[str, ...]) -> bool:
    try:
        check_metadata("", dict.fromkeys(keys))
    except DataError:
        return False
    return True


def _is_kept_value(values: list[Any]) -> bool:
    kinds = set(map(type, values))
    if kinds == {str}:
        return UNENCODABLE.search("".join(values)) is None
    if kinds == {int}:
        return all(-(2**63) <= value < 2**63 for value in (min(values), max(values)))
    if kinds == {float}:
        return all(map(math.isfinite, values))
    if kinds == {list}:
        parts = list(chain.from_iterable(values))
        return not parts or (set(map(type, parts)) == {str} and _is_kept_value(parts))
    return kinds <= {bool}


def parse_metadata(where: str, text: Any) -> Metadata:
    """The metadata of an item from their JSON; `where` begins the message where they are none."""
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: must be a JSON object")
    return value
