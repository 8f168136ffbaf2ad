"""Scan or multi-index hashing, by what each costs here: measured once an index, when it is first asked.

The measure is nanoseconds an item. A scan's cost is known beforehand; that of hashing depends on how far the k-th
neighbour is, so `mih.search` starts, and gives up as soon as what it would still have to look at to reach the worst
of the k best so far costs more than the scan. Both are exact: only time depends on the choice.
"""

import time
from dataclasses import dataclass, replace

import numpy as np

from kenthash.search import mih
from kenthash.search.scan import Words, new_heaps

SAMPLE = 1 << 18  # items scanned to time it
QUERIES = 16
MIN_ITEMS = 1 << 17  # fewer are scanned sooner than tables are worth keeping
MAX_BITS = 256  # longer codes would need tables many times their own size


@dataclass(frozen=True)
class Costs:
    scan: float  # nanoseconds an item, in a batch
    mih: float  # nanoseconds an item looked at

    def budget(self, items: int) -> int:
        """Items that hashing may look at for the price of a scan."""
        return int(items * self.scan / self.mih)


def worth_tables(bits: int, items: int) -> bool:
    return items >= MIN_ITEMS and bits <= MAX_BITS


def measure(codes: Words, tables: mih.Tables) -> Costs:
    """Time both on queries near items of the index itself; the best of a few turns counts. What they find counts for
    nothing, so it need not be compared with checksums."""
    from kenthash.search import kernels

    tables = replace(tables, checks=mih.UNCHECKED)
    rng = np.random.default_rng(0)
    queries = codes[rng.integers(0, len(codes), QUERIES)].copy()
    queries[:, 0] ^= np.uint64(0x0004_0020_0001_0800)  # a bit in each quarter, so that some way has to be gone
    none, sample = np.empty(0, np.uint64), min(SAMPLE, len(codes))
    scan = hashing = np.inf
    for _ in range(3):
        heaps = new_heaps(QUERIES, 10, 64 * codes.shape[1])
        start = time.perf_counter()
        kernels.scan(queries, codes, 0, sample, none, heaps)
        scan = min(scan, (time.perf_counter() - start) / (QUERIES * sample))
        heaps[:] = new_heaps(1, 10, 64 * codes.shape[1])
        start = time.perf_counter()
        looked = sum(
            abs(tables.search(query, codes, none, 1 << 16, 1 << 16, heap))
            for query, heap in zip(queries, heaps, strict=True)
        )
        hashing = min(hashing, (time.perf_counter() - start) / max(looked, 1))
    return Costs(1e9 * scan, 1e9 * hashing)
