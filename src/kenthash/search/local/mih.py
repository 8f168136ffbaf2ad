"""Multi-index hashing: exact nearest codes without looking at most of them (Norouzi, Punjani & Fleet, CVPR 2012).

A code is cut into m substrings, and each has a table of buckets by its value. If two codes differ in r = m·a + j bits,
then one of the substrings 0 to j differs in at most a bits, or one of the others in at most a − 1 (§3). So a search
goes through the steps t = m·a + j = 0, 1, 2 ..., each looking into the buckets of table j at exactly a bits from the
query; after step t every item within distance t has been seen, and once k of them are known the search is over (§3.2).

An item is in m tables but is counted once: at its first step. Whether a step is the first follows from the distances of
the substrings, so no set of seen items is kept.

Two forms: the fast one keeps the codes beside the slots in the order of the buckets, 11 bytes per item and table; the
compact one keeps slots only, 3 bytes per item and table, and fetches codes from the array of all codes. (A slot is
split into its lower 16 bits and the rest, which takes one byte up to 16 million items and two beyond.)

With weighted distances (see `queries`) the buckets of a table are taken in the order of weights, not of bits: a round
looks into all buckets of every table whose part of the distance is at most τ, for growing τ. An item that no round has
met has a larger part in each of m substrings, so its distance is at least m (τ + 1).

Scan or hashing is decided by what each costs on this machine, measured once per index when it is first searched: a
scan's cost is known beforehand; that of hashing depends on the distance of the k-th neighbour, so `Tables.search`
starts, and gives up as soon as reaching the worst of the k best so far would cost more than the scan. Both are exact:
only time depends on the choice.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.search.local.checksums import IN_MEMORY, Blocks, DamagedCodeFile
from kenthash.search.local.scan import Keys, WordQueries, Words, scan_compiled, word_queries
from kenthash.search.queries import Queries

Low = NDArray[np.uint16]
High = NDArray[Any]  # uint8 or uint16
Cuts = NDArray[np.int64]  # [m, 3]: word, shift, width of each substring
Flags = NDArray[np.uint8]
Places = NDArray[np.int64]  # [3, 3]: first byte, bytes per entry and end of low, high and copies in the data

UNIT = 11  # entries that are compared with their checksums together: 2^11
SEARCHES_PER_LOOK = 256  # after so many searches, `Checks` tests whether anything is left to compare
NO_FLAGS = np.empty(0, np.uint8)

MIN_ITEMS = 1 << 17  # with fewer, a scan is so fast that tables are not worth keeping
MAX_BITS = 256  # longer codes would need tables many times their own size
SAMPLE = 1 << 18  # items scanned to time the scan
QUERIES = 16  # of which the time is measured


def substring_cuts(bits: int, items: int) -> Cuts:
    """Substrings of 16 bits, shorter ones for few items, none across two words. (§4 advises about log₂ N bits; 21
    measured slower up to 10 million items.) Bits left over are ignored: the argument holds for any disjoint
    substrings."""
    parts = 4 if items >= 1 << 15 else 6
    cuts = []
    for word in range(-(-bits // 64)):
        size = min(64, bits - 64 * word)
        count = max(round(size * parts / 64), 1 if word == 0 else 0)
        edges = [size * i // count for i in range(count + 1)] if count else []
        cuts += [(word, a, b - a) for a, b in pairwise(edges)]
    return np.array(cuts, np.int64)


@dataclass
class Checks:
    """The checksums with which low, high and copies of a mapped file are compared when they are first read."""

    blocks: Blocks
    ready: Flags  # 1 for each unit of 2^UNIT entries, counted over all tables, of which all three have been compared
    places: Places
    searches: int = 0

    def count_search(self) -> None:
        """To be called after each search. Once everything has been compared, later searches skip looking at `ready`."""
        self.searches += 1
        if self.searches % SEARCHES_PER_LOOK == 0 and self.ready.all():
            self.ready = NO_FLAGS


UNCHECKED = Checks(IN_MEMORY, NO_FLAGS, np.empty((0, 3), np.int64))


@dataclass(frozen=True)
class Tables:
    cuts: Cuts
    offsets: NDArray[np.uint32]  # flat: table j has 2^width + 1 of them
    low: Low  # [m, N]: lower bits of the slots, in the order of the buckets, ascending within one
    high: High  # [m, N]: upper bits
    copies: Words  # [m, N]: the codes in the same order; [m, 0] in the compact form
    checks: Checks = field(default_factory=lambda: UNCHECKED)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each table's offsets begin."""
        return np.concatenate(([0], np.cumsum((1 << self.cuts[:, 2]) + 1)))

    def search(
        self, queries: WordQueries, q: int, codes: Words, allowed: Words, free: int, budget: int, heap: Keys
    ) -> int:
        """Fill the heap of query q; the number of items looked at, negative where it gave up.

        It gives up when it has looked at more than `free` items and would need more than `budget` in all to reach
        the worst of the k best so far, or has used up the budget. Offsets and, in the compact form, codes must have
        been compared with their checksums before.
        """
        from kenthash.search.local import kernels

        blocks, places = self.checks.blocks, self.checks.places
        tables: tuple[Any, ...] = (self.cuts, self.starts, self.offsets, self.low, self.high, self.copies)
        search_arguments: tuple[Any, ...] = (
            allowed,
            free,
            budget,
            heap,
            self.checks.ready,
            blocks.data,
            blocks.sums,
            blocks.seen,
            places,
        )
        if queries.planes is None or queries.weights is None:
            looked_at = kernels.search_tables(queries.words[q], codes, *tables, *search_arguments)
        else:
            from kenthash.search.local import weighted_kernels

            query = (queries.words[q], queries.planes[q], queries.weights[q], queries.radius)
            looked_at = weighted_kernels.search_tables(*query, codes, *tables, *search_arguments)
        if looked_at == kernels.DAMAGED:
            raise DamagedCodeFile(blocks.path, "its tables do not match their checksums")
        self.checks.count_search()
        return looked_at


def new_checks(blocks: Blocks, entries: int, places: list[tuple[int, int]]) -> Checks:
    """For tables of `entries` in total; `places` are the first byte and the bytes per entry of low, high and copies in
    the blocks."""
    rows = [(first, size, first + size * entries) for first, size in places]
    return Checks(blocks, np.zeros((entries >> UNIT) + 1, np.uint8), np.array(rows, np.int64))


def offsets_size(cuts: Cuts) -> int:
    return int(((1 << cuts[:, 2]) + 1).sum())


def high_bytes(items: int) -> int:
    """The size of the upper part of a slot."""
    return 1 if items <= 1 << 24 else 2


def fill_tables(tables: Tables, codes: Words, threads: int) -> None:
    """Sort all codes [N, W] into the buckets of tables that have been laid out for them."""
    from kenthash.search.local import kernels

    def fill_one(j: int) -> None:
        begin, end = tables.starts[j], tables.starts[j + 1]
        word, shift, width = (int(x) for x in tables.cuts[j])
        kernels.fill_table(
            codes, word, shift, width, tables.offsets[begin:end], tables.low[j], tables.high[j], tables.copies[j]
        )

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill_one, range(len(tables.cuts))))


@dataclass(frozen=True)
class Costs:
    scan: float  # nanoseconds per item, for several queries together
    mih: float  # nanoseconds per item looked at

    def budget(self, items: int) -> int:
        """The number of items that hashing may look at in the time of a scan."""
        return int(items * self.scan / self.mih)


def worth_tables(bits: int, items: int) -> bool:
    return items >= MIN_ITEMS and bits <= MAX_BITS


def measure_costs(codes: Words, tables: Tables, weighted: bool) -> Costs:
    """Time both on queries near items of the index itself, in processor time; the best of three turns counts. The
    answers are not used, so nothing is compared with checksums."""
    tables = replace(tables, checks=UNCHECKED)
    rng = np.random.default_rng(0)
    near = codes[rng.integers(0, len(codes), QUERIES)].copy()
    near[:, 0] ^= np.uint64(0x0004_0020_0001_0800)  # a bit in each quarter, so that several steps are needed
    bits = 64 * codes.shape[1]
    weights = rng.integers(1, 256, (QUERIES, bits), np.uint8) if weighted else None
    queries = word_queries(Queries(near.view(np.uint8), weights), bits)
    none, sample = np.empty(0, np.uint64), min(SAMPLE, len(codes))
    scan = hashing = np.inf
    for _ in range(3):
        heaps = queries.new_heaps(10)
        start = time.thread_time()
        scan_compiled(queries, codes, 0, sample, none, heaps)
        scan = min(scan, (time.thread_time() - start) / (QUERIES * sample))
        heaps[:] = queries.new_heaps(10)
        start = time.thread_time()
        looked = sum(
            abs(tables.search(queries, q, codes, none, 1 << 16, 1 << 16, heap)) for q, heap in enumerate(heaps)
        )
        hashing = min(hashing, (time.thread_time() - start) / max(looked, 1))
    return Costs(1e9 * scan, 1e9 * hashing)
