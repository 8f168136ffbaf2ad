"""One state of a local index, ready to search: the code file, what went from it, and what came since.

What came since (`fresh`) lies in memory in the order of ids, like the file, and is scanned; the two results merge by
distance and id. A snapshot never changes: catching up with the store makes a new one, so searches that run go on.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.search import mih, planner, scan
from kenthash.search.codefile import CodeFile, to_words
from kenthash.search.scan import Keys, Words
from kenthash.search.store import Mark, Store

ALL = np.empty(0, np.uint64)  # a bitmap that allows every slot
SPLIT = 1 << 21  # words of codes from which one query is worth several threads
PATIENCE, RETRY = 8, 16  # after so many searches in a row that hashing gave up, it tries one in so many
FREE = 0.02  # of a scan's cost, that hashing may spend before it has to be promising


@dataclass(frozen=True)
class Fresh:
    """Items that are not in the code file."""

    ids: list[str]
    rows: NDArray[np.int64]
    codes: Words  # [n, W]


@dataclass(frozen=True)
class Snapshot:
    base: CodeFile
    gone: NDArray[np.int64]  # rows that are in the code file and no longer in the store
    present: Words  # bitmap of slots of the code file that are still there; empty where all are
    fresh: Fresh
    mark: Mark
    costs: list[planner.Costs] = field(default_factory=list)  # measured when first needed; shared with later snapshots
    failures: list[int] = field(default_factory=lambda: [0])  # of hashing, in a row; only ever a guess about speed

    @property
    def items(self) -> int:
        return len(self.base.codes) - len(self.gone) + len(self.fresh.ids)

    def allowed(self, rows: NDArray[np.int64]) -> tuple[Words, Words]:
        """Bitmaps of the slots, in the code file and of the fresh items, that hold one of these rows."""
        self.base.check("rows")
        last = self.base.last_row
        fresh = _bitmap(np.flatnonzero(np.isin(self.fresh.rows, rows[rows > last])), len(self.fresh.rows))
        return _slots_of(self.base.rows, rows[rows <= last], last, True), fresh

    def search(
        self,
        queries: Words,
        k: int,
        radius: int,
        allowed: tuple[Words, Words] | None,
        pool: ThreadPoolExecutor,
        threads: int,
        looked_at: NDArray[np.int64] | None = None,
    ) -> tuple[Keys, Keys]:
        """The k best keys of each query in the code file and among the fresh items. To `looked_at`, if given, is added
        how many codes each query was compared with."""
        looked = np.zeros(len(queries), np.int64) if looked_at is None else looked_at
        looked += len(self.fresh.codes)
        base, fresh = allowed or (self.present, ALL)
        heaps, new = (scan.new_heaps(len(queries), k, radius) for _ in range(2))
        if scan.use_numpy(len(queries) * (self.base.codes.size + self.fresh.codes.size)):
            self.base.check("codes")
            scan.nearest(queries, self.base.codes, base, heaps)
            scan.nearest(queries, self.fresh.codes, fresh, new)
            looked += len(self.base.codes)
            return heaps, new
        from kenthash.search import kernels

        tables = self.base.tables
        if tables is None or not tables.copies.size:
            self.base.check("codes", pool, threads)
        if tables is not None:
            self.base.check("offsets")
        if tables is not None and not self.costs:
            self.costs.append(planner.measure(self.base.codes, tables))
        if len(queries) > 1 and threads > 1:
            parts = [slice(i, None, threads) for i in range(min(threads, len(queries)))]
            for part, done in zip(
                parts,
                pool.map(lambda part: self._base(queries[part], base, heaps[part], looked[part]), parts),
                strict=True,
            ):
                heaps[part] = done
        else:
            heaps = self._base(queries, base, heaps, looked, pool if threads > 1 else None, threads)
        kernels.scan(queries, self.fresh.codes, 0, len(self.fresh.codes), fresh, new)
        return heaps, new

    def _base(
        self,
        queries: Words,
        allowed: Words,
        heaps: Keys,
        looked: NDArray[np.int64],
        pool: ThreadPoolExecutor | None = None,
        threads: int = 1,
    ) -> Keys:
        from kenthash.search import kernels

        queries, heaps = np.ascontiguousarray(queries), np.ascontiguousarray(heaps)
        codes, tables = self.base.codes, self.base.tables
        left = list(range(len(queries)))
        if tables is not None:
            budget = self.costs[0].budget(len(codes))
            left = [q for q in left if not self._hash(tables, queries[q], allowed, budget, heaps[q], looked[q : q + 1])]
        if not left:
            return heaps
        self.base.check("codes", pool, threads)
        rest = np.ascontiguousarray(heaps[left])
        looked[left] += len(codes)
        if pool is None or codes.size < SPLIT:
            kernels.scan(queries[left], codes, 0, len(codes), allowed, rest)
        else:
            rest = _scan_in_parts(queries[left], codes, allowed, rest, pool, threads)
        heaps[left] = rest
        return heaps

    def _hash(
        self, tables: mih.Tables, query: Words, allowed: Words, budget: int, heap: Keys, looked: NDArray[np.int64]
    ) -> bool:
        """Whether hashing found the k best. If not, the heap is as before, but for a nearer bound on their distance."""
        self.failures[0] += 1
        if self.failures[0] > PATIENCE and self.failures[0] % RETRY:
            return False
        none = heap[0]
        count = tables.search(query, self.base.codes, allowed, int(FREE * budget), budget, heap)
        looked += abs(count)
        if count >= 0:
            self.failures[0] = 0
            return True
        heap[:] = min(none, ((heap[0] >> np.uint64(32)) + np.uint64(1)) << np.uint64(32))
        return False

    def caught_up(self, store: Store, mark: Mark) -> "Snapshot":
        """This state brought to that of the store's current transaction, which stands at `mark`."""
        if mark == self.mark:
            return self
        removed = store.removed_since(self.mark.removal)
        old = ~np.isin(self.fresh.rows, removed)
        ids = [name for name, kept in zip(self.fresh.ids, old, strict=True) if kept]
        more_rows, more_ids, more_codes = store.added_since(self.mark.row)
        ids += more_ids
        rows = self.fresh.rows[old].tolist() + more_rows
        codes = np.concatenate((self.fresh.codes[old], to_words(more_codes, len(more_ids), store.bits)))
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)  # mostly sorted already: cheap
        fresh = Fresh([ids[i] for i in order], np.array(rows, np.int64)[order], np.ascontiguousarray(codes[order]))
        gone, present = np.concatenate((self.gone, removed[removed <= self.base.last_row])), self.present
        if len(gone) > len(self.gone):
            self.base.check("rows")
            present = _slots_of(self.base.rows, gone, self.base.last_row, False)
        return Snapshot(self.base, gone, present, fresh, mark, self.costs, self.failures)


def of_file(base: CodeFile) -> Snapshot:
    nothing = Fresh([], np.empty(0, np.int64), base.codes[:0])
    return Snapshot(base, np.empty(0, np.int64), ALL, nothing, base.mark)


def _scan_in_parts(
    queries: Words, codes: Words, allowed: Words, heaps: Keys, pool: ThreadPoolExecutor, threads: int
) -> Keys:
    """One scan on several threads: each takes a stretch of the items, with a heap of its own."""
    from kenthash.search import kernels

    edges = [len(codes) * i // threads for i in range(threads + 1)]

    def part(i: int) -> Keys:
        own = heaps.copy()
        kernels.scan(queries, codes, edges[i], edges[i + 1], allowed, own)
        return own

    found = np.concatenate(list(pool.map(part, range(threads))), axis=1)
    return np.partition(found, heaps.shape[1] - 1, axis=1)[:, : heaps.shape[1]]


def _bitmap(members: NDArray[np.int64], size: int) -> Words:
    """Of the numbers below `size`. It is never empty, which would stand for all of them."""
    bits = np.zeros((size // 64 + 1) * 64, np.bool_)
    bits[members] = True
    return np.packbits(bits, bitorder="little").view("<u8")


def _slots_of(rows: NDArray[Any], members: NDArray[np.int64], last: int, value: bool) -> Words:
    """A bitmap of the slots whose row is (value True) or is not (False) one of `members`, which are at most `last`."""
    wanted = np.zeros(last + 2, np.bool_)
    wanted[members] = True
    return _bitmap(np.flatnonzero(wanted[np.minimum(rows, last + 1)] == value), len(rows))
