"""The index that users hold: items found by the Hamming distance of their codes, on any engine.

    from kenthash import Index
    with Index.create("pictures.kh", bits=64) as index:
        index.add(ids, codes, metadata)
        hits = index.search(hasher.encode_texts(["two dogs and a kite"]), k=10, filter="place = 'beach'")

A target is the path of a file (the local engine), `milvus://host:19530/name` or `postgresql://...`. All arguments are
checked here, once, so that engines need not check them.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np

from kenthash.codes import Codes, check_bits
from kenthash.errors import DataError, UsageError
from kenthash.search.addresses import without_password
from kenthash.search.engine import Engine, Hits, Item, Metadata, NoSuchIndex, Stats, Value, coded_texts
from kenthash.search.filters import UNENCODABLE, Filter, parse

MAX_ID = 1024  # characters
MAX_KEY = 128  # characters of a metadata key
MAX_METADATA = 1 << 16  # bytes of an item's metadata as JSON
MAX_K = 10_000
MAX_LIST = 1 << 31  # ids of one list
TEXTS = "texts"  # a note: whether the codes of texts are "begun" or "complete"
NO_TEXTS = "this index has no texts: run `kenthash index add FOLDER --texts`"
CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")  # also line ends and surrogates
FORBIDDEN = re.compile(CONTROL.pattern + r'|["\\]')  # in a key


class Index:
    """Items by id, each with a code and metadata, on the engine that the target names.

    Example:

        >>> from tempfile import TemporaryDirectory
        >>> codes = np.uint8([[0b1111], [0b0111], [0b0000]])
        >>> with TemporaryDirectory() as folder, Index.create(f"{folder}/pictures.kh", bits=8) as index:
        ...     index.add(["a.jpg", "b.jpg", "c.jpg"], codes, [{"year": 2019}, {"year": 2021}, {"year": 2022}])
        ...     (hits,) = index.search(codes[:1], k=2)
        ...     (late,) = index.search(codes[:1], k=2, filter="year > 2020")
        >>> hits.ids, hits.distances.tolist()
        (['a.jpg', 'b.jpg'], [0, 1])
        >>> late.ids, late.metadata
        (['b.jpg', 'c.jpg'], [{'year': 2021}, {'year': 2022}])
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._closed = False

    @classmethod
    def create(cls, target: str | Path, bits: int, **options: Any) -> Self:
        """Create an empty index; it is an error if it exists already."""
        return cls(_engine_class(str(target)).create(str(target), check_bits(bits), **options))

    @classmethod
    def open(cls, target: str | Path, **options: Any) -> Self:
        return cls(_engine_class(str(target)).open(str(target), **options))

    @classmethod
    def open_or_create(cls, target: str | Path, bits: int) -> Self:
        """Open an index of codes of `bits` bits, or create it where there is none yet."""
        try:
            index = cls.open(target)
        except NoSuchIndex:
            return cls.create(target, bits)
        if index.bits != bits:
            actual = index.bits
            index.close()
            raise UsageError(f"{without_password(str(target))}: holds codes of {actual} bits, not {bits}")
        return index

    @property
    def bits(self) -> int:
        return self.engine.bits

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Mapping[str, Value]] | None = None) -> None:
        """Add items. When this returns they are on disk; an id that exists is an error, and nothing is added."""
        self._open_engine().add(*self._checked_items(ids, codes, metadata))

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Mapping[str, Value]] | None = None) -> None:
        """Add items, replacing those whose id exists. New and changed texts have no codes until `add_texts`."""
        self._open_engine().upsert(*self._checked_items(ids, codes, metadata))

    def remove(self, ids: Sequence[str]) -> int:
        """Remove items and return the number removed; unknown ids are ignored."""
        return self._open_engine().remove(_checked_ids(ids))

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        return self._open_engine().get(_checked_ids(ids))

    def search(
        self, codes: Codes, k: int = 10, radius: int | None = None, filter: Filter | str | None = None
    ) -> list[Hits]:
        """The k nearest items of each code [Q, bits/8]: exact, by ascending distance, then by id.

        `radius` leaves out items that are further away; `filter` (see `filters`), those for which it is not true.
        """
        self._check_query(codes, k, radius)
        return self._open_engine().search(codes, k, radius, parse(filter) if isinstance(filter, str) else filter)

    def search_texts(
        self, codes: Codes, k: int = 10, radius: int | None = None, filter: Filter | str | None = None
    ) -> list[Hits]:
        """The k items with the nearest texts; `Hits.texts` has the nearest text of each item. The codes of texts are
        made by `kenthash.search.add_texts`. Exact, and ordered as in `search`."""
        self._check_query(codes, k, radius)
        if not self.has_texts():
            raise UsageError(NO_TEXTS)
        return self._open_engine().search_texts(codes, k, radius, parse(filter) if isinstance(filter, str) else filter)

    def has_texts(self) -> bool:
        """Whether items can be found by their texts."""
        return self.notes().get(TEXTS) == "complete"

    def keeps_texts(self) -> bool:
        """Whether those who add items should make the codes of their texts."""
        return TEXTS in self.notes()

    def put_texts(self, items: Sequence[Item], codes: Sequence[Codes]) -> None:
        """Set the codes of the items' texts: for each item one row per text, in the order of `coded_texts`. Items that
        have changed since they were read are skipped."""
        for item, rows in zip(items, codes, strict=True):
            self._check_codes(rows)
            if len(rows) != len(coded_texts(item.metadata)):
                raise UsageError(f"{len(rows)} codes for the {len(coded_texts(item.metadata))} texts of {item.id!r}")
        self._open_engine().put_texts([item.id for item in items], [item.metadata for item in items], codes)

    def count_texts(self, ids: Sequence[str]) -> list[int]:
        """For each item, the number of its texts that have codes."""
        return self._open_engine().count_texts(_checked_ids(ids))

    def list_ids(self, after: str = "", limit: int = 1000) -> list[str]:
        """Up to `limit` ids that come after `after`, in plain string order."""
        if not 1 <= limit <= MAX_LIST:
            raise UsageError(f"limit {limit}: must be from 1 to {MAX_LIST:,}")
        (start,) = _checked_ids(after)
        return self._open_engine().list_ids(start, limit)

    def label_counts(self, limit: int = 100) -> list[tuple[str, int]]:
        """The most frequent labels, each with the number of items that have it in their list `labels`."""
        if not 1 <= limit <= MAX_K:
            raise UsageError(f"limit {limit}: must be from 1 to {MAX_K:,}")
        return self._open_engine().label_counts(limit)

    def notes(self) -> dict[str, str]:
        return self._open_engine().notes()

    def note(self, key: str, value: str) -> None:
        if UNENCODABLE.search(key + value):
            raise DataError(f"note {key!r}: {value[:60]!r} holds half a character or a zero byte, which cannot be kept")
        self._open_engine().note(key, value)

    def stats(self) -> Stats:
        return self._open_engine().stats()

    def compact(self) -> None:
        """Prepare the index for fast search: a local one writes sorted codes and the tables of multi-index hashing."""
        self._open_engine().compact()

    def close(self) -> None:
        self._closed = True
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_engine(self) -> Engine:
        if self._closed:
            raise UsageError("the index is closed: open it again")
        return self.engine

    def _check_query(self, codes: Codes, k: int, radius: int | None) -> None:
        if not 1 <= k <= MAX_K:
            raise UsageError(f"k = {k}: must be from 1 to {MAX_K:,}")
        if radius is not None and not 0 <= radius <= self.bits:
            raise UsageError(f"radius {radius}: must be from 0 to the {self.bits} bits of the index")
        self._check_codes(codes)

    def _check_codes(self, codes: Codes) -> None:
        if not isinstance(codes, np.ndarray) or codes.dtype != np.uint8:
            raise UsageError(f"codes must be a uint8 array, not {getattr(codes, 'dtype', type(codes).__name__)}")
        if codes.ndim != 2 or codes.shape[1] * 8 != self.bits:
            raise UsageError(
                f"codes of shape {codes.shape}: this index of {self.bits} bits takes [n, {self.bits // 8}]"
            )

    def _checked_items(
        self, ids: Sequence[str], codes: Codes, metadata: Sequence[Mapping[str, Value]] | None
    ) -> tuple[list[str], Codes, list[Metadata]]:
        self._check_codes(codes)
        names = _checked_ids(ids)
        entries: list[Metadata] = [{}] * len(names) if metadata is None else cast(list[Metadata], list(metadata))
        if not len(names) == len(codes) == len(entries):
            raise UsageError(
                f"{len(names)} ids, {len(codes)} codes and {len(entries)} metadata: give the same number of each"
            )
        lengths = list(map(len, names))
        if names and not (min(lengths) > 0 and max(lengths) <= MAX_ID and not CONTROL.search("".join(names))):
            for name in names:
                check_id(name)
        if len(set(names)) < len(names):
            duplicate = Counter(names).most_common(1)[0][0]
            raise DataError(f"id {duplicate!r} is given twice: each item needs its own")
        if metadata is not None:
            for name, entry in zip(names, entries, strict=True):
                check_metadata(name, entry)
        return names, np.ascontiguousarray(codes), entries


def _checked_ids(ids: Sequence[str]) -> list[str]:
    names = [ids] if isinstance(ids, str) else list(ids)
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"id {name!r}: ids are strings")
        if UNENCODABLE.search(name):
            raise DataError(f"id {name[:60]!r}: holds half a character or a zero byte, which no id can")
    return names


def check_id(name: str) -> None:
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


def _engine_class(target: str) -> Any:
    """The class of the engine for a target; imported when it is needed, since each needs its own client library."""
    scheme = target.partition("://")[0] if "://" in target else ""
    if scheme == "milvus":
        from kenthash.search.milvus import MilvusEngine

        return MilvusEngine
    if scheme in ("postgresql", "postgres"):
        from kenthash.search.postgres import PostgresEngine

        return PostgresEngine
    if scheme:
        raise UsageError(f"{without_password(target)}: an index is a file, milvus://host:port/name or postgresql://...")
    from kenthash.search.local import LocalEngine

    return LocalEngine
