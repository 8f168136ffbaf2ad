"""The interface of all search engines, and the types that it uses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.errors import DataError, UsageError
from kenthash.search.filters import Filter
from kenthash.search.photo_counts import PhotoGroup
from kenthash.search.queries import Queries


class NoSuchIndex(DataError):
    """There is no index at this address; one could be created."""


class IndexExists(UsageError):
    """There is an index at this address already; it could be opened."""


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
    code: NDArray[np.uint8]  # [code_bits / 8]
    metadata: Metadata


class Hit(NamedTuple):
    """One of `Hits`."""

    id: str
    distance: int
    metadata: Metadata


@dataclass(frozen=True)
class Hits:
    """The items found for one query: by ascending distance, then by id in plain string order. Iterating gives each as a
    `Hit`."""

    ids: list[str]
    distances: NDArray[np.int64]  # bits that differ; of a real-valued query, the sum of their weights (see `queries`)
    metadata: list[Metadata]
    codes: Codes | None = None  # [n, bits / 8], where the engine returns them; always for a real-valued query
    looked_at: int | None = None  # number of codes that the query was compared with, where the engine counts them
    texts: list[str] | None = None  # in a search among texts: the nearest of each item, whose code is in `codes`
    proven: bool = True  # whether these are certainly the nearest of all items
    differing: NDArray[np.int64] | None = None  # the number of bits that differ; set by `Index`
    full_distance: int = 0  # the distance of a code that differs in all bits; set by `Index`
    named: int = 0  # the number of hits, the first, that were found by their words (see `words`)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Hit]:
        return map(Hit, self.ids, self.distances.tolist(), self.metadata)


@dataclass(frozen=True)
class Stats:
    engine: str  # "local", "milvus", "postgresql"
    items: int
    bits: int  # of the items' codes
    bytes: int  # on disk; 0 where the engine does not know
    details: dict[str, str | int | float]  # more, depending on the engine


class Engine(Protocol):
    """Exact search under Hamming distance, plain or weighted. `Index` has checked every argument before it calls an
    engine.

    An index may be made for search in two stages, by the first `bits` of the `code_bits` of its items' codes and then
    by all of them. An engine that can compare whole codes as fast does only that.
    """

    bits: int
    code_bits: int
    where: str  # the file or address of the index, without a password

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        """Add items; an id that exists already is a DataError that names it, and none of the items is added."""

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        """Add items, replacing those whose id exists, with the codes of their texts."""

    def remove(self, ids: Sequence[str]) -> int:
        """Remove items, with the codes of their texts; unknown ids are ignored. Returns the number removed."""

    def get(self, ids: Sequence[str]) -> list[Item | None]: ...

    def search(self, queries: Queries, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        """The k items nearest to each query, of those that differ in at most `radius` bits and for which `filter` is
        true."""

    def put_texts(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        """Set the codes of the items' texts, [n, code_bits / 8] for the n `coded_texts` of each. Items that were
        removed, or have other metadata by now, are skipped."""

    def count_texts(self, ids: Sequence[str]) -> list[int]:
        """For each item, the number of its texts that have codes."""

    def search_texts(self, queries: Queries, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        """As `search`, but by the codes of texts: the distance of an item is that of its nearest text."""

    def list_ids(self, after: str, limit: int) -> list[str]:
        """Up to `limit` ids that come after `after` ("" for the first), in plain string order."""

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        """The most frequent labels, each with the number of items that have it: the largest number first, then in plain
        string order. Labels are the strings in the key `labels` of metadata, where that is a list."""

    def photo_groups(self) -> list[PhotoGroup]:
        """All items that say when, where or by which camera they were taken, by these, in any order."""

    def notes(self) -> dict[str, str]:
        """Notes about the index as a whole, such as the model that its codes come from."""

    def note(self, key: str, value: str) -> None: ...

    def stats(self) -> Stats: ...

    def compact(self) -> None: ...

    def close(self) -> None: ...
