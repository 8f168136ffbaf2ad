"""The interface of all search engines, and the types that it uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.errors import DataError
from kenthash.search.filters import Filter


class NoSuchIndex(DataError):
    """There is no index at this address; one could be created."""


MAX_TEXTS = 5  # texts per item that have codes: COCO has as many captions per picture

Value = str | int | float | bool | list[str] | None
Metadata = dict[str, Value]


def texts_of(metadata: Metadata) -> list[str]:
    """The texts of an item, the first of which is shown."""
    texts: list[str] = []
    for key in ("text", "texts"):
        value = metadata.get(key)
        texts += [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [text for text in dict.fromkeys(texts) if text.strip()]


def coded_texts(metadata: Metadata) -> list[str]:
    """The texts of an item that have codes."""
    return texts_of(metadata)[:MAX_TEXTS]


@dataclass(frozen=True)
class Item:
    id: str
    code: NDArray[np.uint8]  # [bits / 8]
    metadata: Metadata


@dataclass(frozen=True)
class Hits:
    """The items found for one query: by ascending distance, then by id in plain string order."""

    ids: list[str]
    distances: NDArray[np.int64]
    metadata: list[Metadata]
    codes: Codes | None = None  # [n, bits / 8], where the engine returns them
    looked_at: int | None = None  # number of codes that the query was compared with, where the engine counts them
    texts: list[str] | None = None  # in a search among texts: the nearest of each item, whose code is in `codes`

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Stats:
    engine: str  # "local", "milvus", "postgresql"
    items: int
    bits: int
    bytes: int  # on disk; 0 where the engine does not know
    details: dict[str, str | int | float]  # more, depending on the engine


class Engine(Protocol):
    """Exact search under Hamming distance. `Index` has checked every argument before it calls an engine."""

    bits: int

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        """Add items; an id that exists already is a DataError that names it, and none of the items is added."""

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        """Add items, replacing those whose id exists, with the codes of their texts."""

    def remove(self, ids: Sequence[str]) -> int:
        """Remove items, with the codes of their texts; unknown ids are ignored. Returns the number removed."""

    def get(self, ids: Sequence[str]) -> list[Item | None]: ...

    def search(self, codes: Codes, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        """The k items nearest to each code, of those within `radius` and for which `filter` is true."""

    def put_texts(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        """Set the codes of the items' texts, [n, bits / 8] for the n `coded_texts` of each. Items that were removed, or
        have other metadata by now, are skipped."""

    def count_texts(self, ids: Sequence[str]) -> list[int]:
        """For each item, the number of its texts that have codes."""

    def search_texts(self, codes: Codes, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        """As `search`, but by the codes of texts: the distance of an item is that of its nearest text."""

    def list_ids(self, after: str, limit: int) -> list[str]:
        """Up to `limit` ids that come after `after` ("" for the first), in plain string order."""

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        """The most frequent labels, each with the number of items that have it: the largest number first, then in plain
        string order. Labels are the strings in the key `labels` of metadata, where that is a list."""

    def notes(self) -> dict[str, str]:
        """Notes about the index as a whole, such as the model that its codes come from."""

    def note(self, key: str, value: str) -> None: ...

    def stats(self) -> Stats: ...

    def compact(self) -> None: ...

    def close(self) -> None: ...
