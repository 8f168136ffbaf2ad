"""Histograms of a retrieval by Hamming distance: every measure of this package is computed from them.

counts[q, d, g] is the number of database items at distance d from query q that share g labels with it. A Hamming
distance is a small integer, so a histogram holds the ranking and nothing has to be sorted. Queries and database are
both processed in chunks, so that the working memory is bounded however large either is.

The compiled functions take the codes of queries as rows of 64-bit words [Q, W], those of the database transposed
[W, N], database labels as one bitmap over the items for each class [C, N/64], and query labels as lists of classes. So
the inner loops run over adjacent items and compile to vector instructions for any code length, and the cost of labels
depends on how many a query has, not on the number of classes. Items are processed in blocks that stay in the
first-level cache while all queries pass over them.

The compiled functions release the interpreter lock, and `run_over_database` calls them from one thread per core. That
is safe under threads and forks, which numba's own parallel loops are not on every system.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kenthash.evaluation.inputs import Labels, Retrieval
from kenthash.jit import compiled, popcount
from kenthash.progress import cores

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]

BLOCK = 2048  # items; 16 KiB of each word row
DATABASE_CHUNK = 1 << 18  # items made into words at a time: at most 64 MiB at 1,024 bits and 1,000 classes
COUNTS_BYTES = 32 << 20  # of counts at a time; the measures need about ten arrays of that size
QUERIES_PER_CALL = 64


@dataclass(frozen=True)
class Histograms:
    """The counts of one chunk of queries. `first` is the number of its first query."""

    first: int
    counts: Counts  # [q, bits + 1, grades]

    @property
    def queries(self) -> slice:
        return slice(self.first, self.first + len(self.counts))

    @property
    def relevant(self) -> Counts:
        """[q, bits + 1]: items that share at least one label, by distance."""
        return np.asarray(self.counts[:, :, 1:].sum(axis=2))

    @property
    def total(self) -> Counts:
        """[q, bits + 1]: all items, by distance."""
        return np.asarray(self.counts.sum(axis=2))


def count_by_distance(task: Retrieval, grades: int = 2, device: str = "cpu") -> Iterator[Histograms]:
    """One pass over the codes, in chunks of queries.

    With grades = 2 the counts tell relevant items from others; with more they tell items apart by the number of shared
    labels. A device other than "cpu" is a torch device, which then does the counting.
    """
    bins = (task.bits + 1) * grades
    chunk = max(1, COUNTS_BYTES // (8 * bins))
    for first in range(0, len(task.query_codes), chunk):
        last = min(first + chunk, len(task.query_codes))
        if device == "cpu":
            counts = np.zeros((last - first, bins), np.int64)
            run_over_database(task, first, last, count_items, grades, counts)
        else:
            from kenthash.evaluation.torch_backend import count_items_torch

            counts = count_items_torch(device, task, first, last, grades)
        yield Histograms(first, counts.reshape(last - first, task.bits + 1, grades))


def run_over_database(task: Retrieval, first: int, last: int, function: Callable[..., None], *results: Any) -> None:
    """Call a compiled function for the queries first to last over the database in its order, on all cores.

    The function takes a chunk and the first and last of its queries, then `results`, of which each call touches only
    the rows of its own queries.
    """
    size, workers = last - first, threads()
    queries = as_words(task.query_codes[first:last])
    labels = task.query_labels[first:last] != 0
    offsets = np.concatenate([[0], np.cumsum(labels.sum(axis=1))])
    classes = np.ascontiguousarray(np.nonzero(labels)[1])
    step = min(QUERIES_PER_CALL, -(-size // workers))
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(task.database_codes), DATABASE_CHUNK):
            part = slice(start, start + DATABASE_CHUNK)
            words = np.ascontiguousarray(as_words(task.database_codes[part]).T)
            bitmaps = class_bitmaps(task.database_labels[part])
            own = np.arange(first - start, last - start) if task.exclude_self else np.full(size, -1)
            chunk = Chunk(queries, offsets, classes, words, bitmaps, own)
            calls = [pool.submit(function, chunk, a, min(a + step, size), *results) for a in range(0, size, step)]
            for call in calls:
                call.result()


def as_words(rows: NDArray[np.uint8]) -> Words:
    """Rows of bytes as rows of 64-bit words, zeros after the end.

    Read-only rows, such as those of a memory-mapped file, are copied: numba would compile everything again for them.
    """
    missing = -rows.shape[1] % 8
    if missing:
        rows = np.pad(rows, ((0, 0), (0, missing)))
    return np.require(rows, np.uint8, ["C", "W"]).view(np.uint64)


def class_bitmaps(labels: Labels) -> Words:
    """[C, items/64]: for each class, one bit per item."""
    return as_words(np.ascontiguousarray(np.packbits(labels, axis=0, bitorder="little").T))


def threads() -> int:
    """The number of cores this process may use, at most OMP_NUM_THREADS, which launchers of several processes set."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(limit)) if limit.isdigit() and int(limit) > 0 else cores()


class Chunk(NamedTuple):
    """Queries and a part of the database, in the layout that the compiled functions take."""

    queries: Words  # [Q, W]
    offsets: Counts  # [Q + 1]: query q has the classes offsets[q] to offsets[q + 1]
    classes: Counts
    words: Words  # [W, N], codes of the items
    bitmaps: Words  # [C, N/64], labels of the items
    own: Counts  # [Q], the item that a query must not find, or a number outside the chunk


@compiled
def _distances(query: Words, words: Words, start: int, out: NDArray[np.uint32]) -> None:
    """out[j] = Hamming distance of the query to item start + j."""
    stop = start + len(out)
    first = words[0, start:stop]
    for j in range(len(out)):
        out[j] = np.uint32(popcount(query[0] ^ first[j]))
    for w in range(1, len(query)):
        items = words[w, start:stop]
        for j in range(len(out)):
            out[j] += np.uint32(popcount(query[w] ^ items[j]))


@compiled
def _add_bits(bits: Words, out: NDArray[np.uint32]) -> None:
    """out[64b + j] += bit j of word b."""
    for b in range(len(bits)):
        word, items = bits[b], out[64 * b : 64 * b + 64]
        for j in range(64):
            items[j] += np.uint32((word >> np.uint64(j)) & np.uint64(1))


@compiled
def _shared_labels(
    classes: Counts, bitmaps: Words, start: int, grades: int, either: Words, out: NDArray[np.uint32]
) -> None:
    """out[j] = number of the query's classes that item start + j has; with two grades, whether it has any.

    `out` spans whole words; `either` is scratch space for as many words.
    """
    out[:] = 0
    a, b = start // 64, start // 64 + len(either)
    if grades > 2:
        for c in classes:
            _add_bits(bitmaps[c, a:b], out)
    else:
        either[:] = 0
        for c in classes:
            items = bitmaps[c, a:b]
            for w in range(len(either)):
                either[w] |= items[w]
        _add_bits(either, out)


@compiled
def compare_block(
    chunk: Chunk,
    q: int,
    start: int,
    grades: int,
    distance: NDArray[np.uint32],
    shared: NDArray[np.uint32],
    either: Words,
) -> None:
    """Distances and shared labels of query q and the items from `start` on; arrays as in the two functions above."""
    query_classes = chunk.classes[chunk.offsets[q] : chunk.offsets[q + 1]]
    _distances(chunk.queries[q], chunk.words, start, distance)
    _shared_labels(query_classes, chunk.bitmaps, start, grades, either, shared)


@compiled
def _count(distance: NDArray[np.uint32], shared: NDArray[np.uint32], grades: int, counts: Counts) -> None:
    """Add each item to the bin distance·grades + min(shared, grades − 1), writing the bins over the distances."""
    stride, top = np.uint32(grades), np.uint32(grades - 1)
    for j in range(len(distance)):
        distance[j] = distance[j] * stride + min(shared[j], top)
    for j in range(len(distance)):
        counts[distance[j]] += 1


@compiled
def count_items(chunk: Chunk, first: int, last: int, grades: int, counts: Counts) -> None:
    """Add the items to counts[q, distance·grades + grade] for the queries first to last.

    The grade is the number of shared labels, at most grades − 1; with grades = 2 it says whether an item is relevant.
    """
    size, own = chunk.words.shape[1], chunk.own
    distance, shared, either = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32), np.empty(BLOCK // 64, np.uint64)
    for start in range(0, size, BLOCK):
        n = min(BLOCK, size - start)
        span = (n + 63) // 64
        d, s = distance[:n], shared[:n]
        for q in range(first, last):
            compare_block(chunk, q, start, grades, d, shared[: 64 * span], either[:span])
            _count(d, s, grades, counts[q])
            if start <= own[q] < start + n:
                counts[q, d[own[q] - start]] -= 1
