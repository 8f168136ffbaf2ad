"""The items of a shard: what its readers have in common.

An item has a picture, as bytes or as a file, and a record, which a JSON file or a Parquet row holds: texts, labels, and
metadata by which searches can be filtered.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

MAX_KEY = 128  # characters of a metadata key
MAX_VALUE = 1 << 13  # characters of a text, or of a value that is kept as metadata
MAX_METADATA = 1 << 16  # bytes of an item's metadata as JSON
TEXT_KEYS = ("texts", "text", "captions", "caption")
LABEL_KEYS = ("labels", "label")
RESERVED = frozenset({"path", "size", "mtime", "digest"})  # an index's own, of a file: no shard may name one
CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")  # what an id cannot hold

Metadata = dict[str, str | int | float | bool | list[str] | None]  # as an index keeps it


@dataclass(frozen=True)
class Sample:
    """An item of a shard."""

    id: str
    picture: bytes | Path
    texts: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    metadata: Metadata = field(default_factory=dict)  # other values of its record

    def index_metadata(self) -> Metadata:
        """What an index keeps of it: texts and labels as a picture folder names them, and the other values as far as
        they fit in."""
        own: Metadata = {"text": self.texts[0]} if len(self.texts) == 1 else {"texts": self.texts} if self.texts else {}
        if self.labels:
            own["labels"] = self.labels
        first: Metadata = {"text": self.texts[0]} if self.texts else {}
        choices = (self.metadata | own, own, first)
        return next(
            choice for choice in choices if len(json.dumps(choice, ensure_ascii=False).encode()) <= MAX_METADATA
        )


class Shard(Protocol):
    """One unit of work. It may be sent to another machine, so it holds addresses and no open files."""

    @property
    def name(self) -> str:
        """What its results are called: its path below the data set, without the suffix."""

    @property
    def state(self) -> str:
        """Changes when its content does."""

    def samples(self) -> Iterator[Sample]:
        """All items that have a picture, in order. A shard that cannot be read is a DataError."""


def item_id(name: str) -> str:
    """A name as an id: what an id cannot hold becomes U+FFFD. A digest of the name then follows, so that the ids of
    different names are different.

    Example:

        >>> [item_id(name) for name in ("shard/é", "shard/\\udcff", "shard/\\udcfe")]
        ['shard/é', 'shard/\ufffd-1efe3a58ac58', 'shard/\ufffd-57b43a298950']
    """
    replaced = CONTROL.sub("\ufffd", name)
    if replaced == name:
        return name
    return f"{replaced}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def record_parts(record: Mapping[str, Any]) -> tuple[list[str], list[str], Metadata]:
    """Texts, labels and metadata of an item. Values that no index can keep are left out.

    Example:

        >>> record_parts({"caption": "a kite", "label": 3, "width": 256, "exif": None, "path": "/etc/passwd"})
        (['a kite'], ['3'], {'width': 256})
    """
    own = {*TEXT_KEYS, *LABEL_KEYS, *RESERVED}
    metadata = {key: value for key, value in record.items() if key not in own and _is_kept(key, value)}
    return _strings(record, TEXT_KEYS, (str,)), _strings(record, LABEL_KEYS, (str, int)), metadata


def _strings(record: Mapping[str, Any], keys: Sequence[str], kinds: tuple[type, ...]) -> list[str]:
    """The value of the first of these keys that has one, as a list of strings."""
    value: Any = next((record[key] for key in keys if record.get(key) not in (None, "", [])), [])
    values = value if isinstance(value, list) else [value]
    texts = [str(part)[:MAX_VALUE].replace("\0", " ").strip() for part in values if isinstance(part, kinds)]
    return [text for text in texts if text]


def _is_kept(key: str, value: Any) -> bool:
    if not 0 < len(key) <= MAX_KEY or not key.isprintable() or '"' in key or "\\" in key:
        return False
    if isinstance(value, list):
        return all(isinstance(part, str) for part in value) and _is_kept(key, " ".join(value))
    if isinstance(value, str):
        return 0 < len(value) <= MAX_VALUE and "\0" not in value
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and -(2**63) <= value < 2**63
