"""Multi-index hashing: exact nearest codes without looking at most of them (Norouzi, Punjani & Fleet, CVPR 2012).

A code is cut into m substrings, and each has a table of buckets by its value. If two codes differ in r = m·a + j bits,
then one of the substrings 0 to j differs in at most a bits, or one of the others in at most a − 1 (§3). So a search
goes through the steps t = m·a + j = 0, 1, 2 ..., each looking into the buckets of table j at exactly a bits from the
query; after step t every item within distance t has been seen, and once k of them are known the search is over (§3.2).

An item stands in m tables but is counted once: at its first step. Whether a step is the first follows from the
distances of the substrings, so there is no set of seen items to keep.

Two forms: the fast one keeps the codes beside the slots in the order of the buckets, 11 bytes an item and table; the
compact one keeps slots only, 3 bytes an item and table, and fetches codes from the one array there is. (A slot is split
into its lower 16 bits and the rest, which takes one byte up to 16 million items and two beyond.)
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.search.blocks import IN_MEMORY, Blocks, Damaged
from kenthash.search.scan import Keys, Words

# The compiled steps (`mih_kernels`) are imported where they run: opening an index should not wait for numba.

Low = NDArray[np.uint16]
High = NDArray[Any]  # uint8 or uint16
Cuts = NDArray[np.int64]  # [m, 3]: word, shift, width of each substring
Flags = NDArray[np.uint8]
Places = NDArray[np.int64]  # [3, 3]: first byte, bytes an entry and end of low, high and copies in the checked data

UNIT = 11  # entries that are compared with their checksums together: 2^11
LOOK = 256  # searches after which it is looked whether there is anything left to compare with checksums
NOTHING = np.empty(0, np.uint8)


def cut(bits: int, items: int) -> Cuts:
    """Substrings of 16 bits, fewer for few items, none across two words. (§4 advises about log₂ N bits; 21 measured
    slower up to 10 million items.) Bits left over take no part: the argument holds for any disjoint substrings."""
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
    """With which low, high and copies of a mapped file are compared when they are first read."""

    blocks: Blocks
    ready: Flags  # 1 for each unit of 2^UNIT entries, counted over all tables, of which all three have been compared
    places: Places
    searches: int = 0

    def count(self) -> None:
        """A search has ended. Now and then it turns out to be the last that had anything to compare."""
        self.searches += 1
        if self.searches % LOOK == 0 and self.ready.all():
            self.ready = NOTHING


UNCHECKED = Checks(IN_MEMORY, NOTHING, np.empty((0, 3), np.int64))


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

    def search(self, query: Words, codes: Words, allowed: Words, free: int, budget: int, heap: Keys) -> int:
        """Fill the heap of one query; the number of items looked at, negative where it gave up.

        It gives up when it has looked at more than `free` items and would need more than `budget` in all to reach
        the worst of the k best so far, or has used the budget. Offsets and, in the compact form, codes must have been
        compared with their checksums before.
        """
        from kenthash.search import mih_kernels

        blocks = self.checks.blocks
        looked_at = mih_kernels.search(
            query,
            codes,
            self.cuts,
            self.starts,
            self.offsets,
            self.low,
            self.high,
            self.copies,
            allowed,
            free,
            budget,
            heap,
            self.checks.ready,
            blocks.data,
            blocks.sums,
            blocks.seen,
            self.checks.places,
        )
        if looked_at == mih_kernels.DAMAGED:
            raise Damaged(blocks.path, "its tables do not match their checksums")
        self.checks.count()
        return looked_at


def checks(blocks: Blocks, entries: int, places: list[tuple[int, int]]) -> Checks:
    """Of tables with so many entries together; `places` are the first byte and the bytes an entry of low, high and
    copies in the blocks."""
    rows = [(first, size, first + size * entries) for first, size in places]
    return Checks(blocks, np.zeros((entries >> UNIT) + 1, np.uint8), np.array(rows, np.int64))


def offsets_size(cuts: Cuts) -> int:
    return int(((1 << cuts[:, 2]) + 1).sum())


def high_bytes(items: int) -> int:
    """Of the upper part of a slot."""
    return 1 if items <= 1 << 24 else 2


def fill(tables: Tables, codes: Words, threads: int) -> None:
    """Sort all codes [N, W] into the buckets of tables that have been laid out for them."""
    from kenthash.search import mih_kernels

    def one(j: int) -> None:
        begin, end = tables.starts[j], tables.starts[j + 1]
        word, shift, width = (int(x) for x in tables.cuts[j])
        mih_kernels.fill(
            codes, word, shift, width, tables.offsets[begin:end], tables.low[j], tables.high[j], tables.copies[j]
        )

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, range(len(tables.cuts))))


def build(codes: Words, cuts: Cuts, fast: bool, threads: int = 1) -> Tables:
    """Tables in memory."""
    n, m = len(codes), len(cuts)
    low, high = np.empty((m, n), np.uint16), np.empty((m, n), f"u{high_bytes(n)}")
    tables = Tables(
        cuts, np.empty(offsets_size(cuts), np.uint32), low, high, np.empty((m, n if fast else 0), np.uint64)
    )
    fill(tables, codes, threads)
    return tables
