"""Histograms of a retrieval by Hamming distance: the one thing that every measure here is computed from.

counts[q, d, g] is the number of database items at distance d from query q that share g labels with it. Queries and
database are both taken in chunks, so that the working memory is bounded however large either is.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.cores import cores
from kenthash.evaluation import kernels
from kenthash.evaluation.inputs import Labels, Retrieval
from kenthash.evaluation.kernels import Counts, Words

DATABASE_CHUNK = 1 << 18  # items made into words at a time: at most 64 MiB at 1,024 bits and 1,000 classes
COUNTS_BYTES = 32 << 20  # of counts at a time; the measures need about ten arrays of that size
QUERIES_A_TASK = 64


@dataclass(frozen=True)
class Tally:
    """Counts of one chunk of queries. `first` is the number of its first query."""

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


def tallies(task: Retrieval, grades: int = 2, device: str = "cpu") -> Iterator[Tally]:
    """One pass over the codes, in chunks of queries. Grades = 2 tells relevant from not; more tell them apart by the
    number of shared labels. A device other than "cpu" is a torch device and does the counting there."""
    bins = (task.bits + 1) * grades
    chunk = max(1, COUNTS_BYTES // (8 * bins))
    for first in range(0, len(task.query_codes), chunk):
        last = min(first + chunk, len(task.query_codes))
        if device == "cpu":
            counts = np.zeros((last - first, bins), np.int64)
            sweep(task, first, last, kernels.tally, grades, counts)
        else:
            from kenthash.evaluation.device import tally_on

            counts = tally_on(device, task, first, last, grades)
        yield Tally(first, counts.reshape(last - first, task.bits + 1, grades))


def sweep(task: Retrieval, first: int, last: int, kernel: Callable[..., None], *results: Any) -> None:
    """Run a kernel for the queries first to last over the database, in the order of its index, on all cores.

    The kernel takes a chunk and the first and last of its queries, then `results`, of which each call touches only its
    own queries' rows.
    """
    size, workers = last - first, threads()
    queries = as_words(task.query_codes[first:last])
    labels = task.query_labels[first:last] != 0
    offsets = np.concatenate([[0], np.cumsum(labels.sum(axis=1))])
    classes = np.ascontiguousarray(np.nonzero(labels)[1])
    step = min(QUERIES_A_TASK, -(-size // workers))
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(task.database_codes), DATABASE_CHUNK):
            part = slice(start, start + DATABASE_CHUNK)
            words = np.ascontiguousarray(as_words(task.database_codes[part]).T)
            bitmaps = class_bitmaps(task.database_labels[part])
            own = np.arange(first - start, last - start) if task.exclude_self else np.full(size, -1)
            chunk = kernels.Chunk(queries, offsets, classes, words, bitmaps, own)
            calls = [pool.submit(kernel, chunk, a, min(a + step, size), *results) for a in range(0, size, step)]
            for call in calls:
                call.result()


def as_words(rows: NDArray[np.uint8]) -> Words:
    """Rows of bytes as rows of 64-bit words, zeros after the end.

    Read-only rows, as of a mapped file, are copied: numba would compile the kernels once more for them.
    """
    missing = -rows.shape[1] % 8
    if missing:
        rows = np.pad(rows, ((0, 0), (0, missing)))
    return np.require(rows, np.uint8, ["C", "W"]).view(np.uint64)


def class_bitmaps(labels: Labels) -> Words:
    """[C, items/64]: for each class, one bit an item."""
    return as_words(np.ascontiguousarray(np.packbits(labels, axis=0, bitorder="little").T))


def threads() -> int:
    """As many as this process may use; OMP_NUM_THREADS, which launchers of several processes set, is a limit."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(limit)) if limit.isdigit() and int(limit) > 0 else cores()
