"""One state of the store of a local index, ready to search: the code file, which of its items were removed, and the
items added since (`Fresh`), which are in memory and are scanned. A snapshot never changes: catching up with the store
makes a new one, so that searches under way are not disturbed. That costs little, whatever the number of items: fresh
ones stay in the order in which they came. (Where several of them tie last, those with the smallest ids are picked.)

**Two stages.** Where codes have more than `bits` bits, up to WHOLE items are all ranked by whole codes, which are then
held in memory. Of more items the candidates are those that are nearest by the first bits, which are in memory and in
the tables; the other bits (`rest_codes`) are read for the candidates alone, and all bits rank them. Hashing finds some
hundreds of candidates; a scan finds one for every 256 items (`scan`), in little more time than a few. A code is at
least as far away by all of its bits as by the first. So the answer is proven to be that of all items, if its last
distance is less than the largest among the candidates by the first bits.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.search.local import mih, scan
from kenthash.search.local.codefile import CodeFile
from kenthash.search.local.scan import (
    Distances,
    Keys,
    Slots,
    WordQueries,
    Words,
    joined_queries,
    split_words,
    word_queries,
)
from kenthash.search.local.store import Mark, Store
from kenthash.search.queries import Queries

ALL = np.empty(0, np.uint64)  # a bitmap that allows every slot
SPLIT = 1 << 21  # words of codes from which one query is scanned by several threads
GIVE_UPS, RETRY = 8, 16  # after so many searches in a row in which hashing gave up, one in RETRY tries it
FREE = 0.02  # share of a scan's cost that hashing may spend before it is judged
FEW_REMOVED = 16  # for which the slots are found one by one
WHOLE = 100_000  # items of which all are ranked by whole codes: hardly slower than candidates, by the compiled scan
CANDIDATES, PER_HIT = 400, 4  # of the second stage: at least so many, and so many for each of k ...
ITEMS_PER_CANDIDATE = 256  # ... and, by a scan, one for so many items

Bitmaps = tuple[Words, Words]  # of the slots in the code file and of the fresh ones


class SearchContext(NamedTuple):
    """What all parts of a search share."""

    allowed: Bitmaps
    pool: ThreadPoolExecutor
    threads: int
    looked_at: NDArray[np.int64]  # [Q]: the number of codes that each query was compared with is added to it


@dataclass(frozen=True)
class Near:
    """What one query has found: at least its k best; more where several tie last."""

    rows: list[int]
    distances: list[int]
    proven: bool


@dataclass(frozen=True)
class Candidates:
    """The best items of one query by the first bits."""

    slots: Slots  # in the code file
    fresh: Slots  # of the fresh items
    distances: Distances  # of both
    beyond: int | None  # items that are not among them are at least as far away; None: there are none


@dataclass(frozen=True)
class Fresh:
    """Items that are not in the code file, in the order of their rows."""

    ids: list[str]  # shared with later snapshots, which have more of them: copying takes longer than all the rest
    rows: NDArray[np.int64]  # [n]
    codes: Words  # [n, W]: of the first bits
    rest_codes: Words  # [n, W']: of the others
    in_store: NDArray[np.bool_]  # whether the item is still in the store

    @cached_property
    def whole(self) -> "Fresh":
        """The same with whole codes."""
        return replace(
            self, codes=np.concatenate((self.codes, self.rest_codes), axis=1), rest_codes=self.rest_codes[:, :0]
        )

    @cached_property
    def present(self) -> Words:
        return ALL if self.in_store.all() else _bitmap(np.flatnonzero(self.in_store), len(self.in_store))

    def changed(self, removed: NDArray[np.int64], rows: list[int], ids: list[str], codes: Codes, bits: int) -> "Fresh":
        """Without rows that were removed, and with items that were added."""
        in_store = np.concatenate((self.in_store, np.ones(len(rows), np.bool_)))
        all_rows = np.concatenate((self.rows, np.array(rows, np.int64)))
        places = np.searchsorted(all_rows, removed)
        places = places[places < len(all_rows)]
        in_store[places[np.isin(all_rows[places], removed)]] = False
        first, rest_codes = split_words(codes, bits)
        all_ids = self.ids if len(self.ids) == len(self.rows) else self.ids[: len(self.rows)]
        all_ids += ids
        return Fresh(
            all_ids,
            all_rows,
            np.concatenate((self.codes, first)),
            np.concatenate((self.rest_codes, rest_codes)),
            in_store,
        )


@dataclass
class Judgement:
    """What is known about the speed of hashing, of one kind of distance; shared by all snapshots of a code file."""

    costs: mih.Costs | None = None  # measured when first needed
    give_ups: int = 0  # in a row


@dataclass(frozen=True)
class Snapshot:
    base: CodeFile
    bits: int  # of the first stage
    removed: NDArray[np.int64]  # rows that are in the code file and no longer in the store
    present: Words  # bitmap of the slots of the code file that were not removed; empty where none was
    fresh: Fresh
    mark: Mark
    judgements: tuple[Judgement, Judgement] = field(default_factory=lambda: (Judgement(), Judgement()))

    @cached_property
    def items(self) -> int:
        return len(self.base.codes) - len(self.removed) + int(self.fresh.in_store.sum())

    @property
    def ranks_all(self) -> bool:
        """Whether whole codes of all items are compared, although there are two stages."""
        return len(self.base.codes) + len(self.fresh.codes) <= WHOLE

    @cached_property
    def whole(self) -> "Snapshot":
        """The same items with whole codes."""
        return replace(self, base=self.base.whole, fresh=self.fresh.whole)

    def allowed(self, rows: NDArray[np.int64]) -> Bitmaps:
        """The slots that hold one of these rows."""
        self.base.check("rows")
        last = self.base.last_row
        fresh = _bitmap(np.flatnonzero(np.isin(self.fresh.rows, rows[rows > last])), len(self.fresh.rows))
        return _slots_of(self.base.rows, rows[rows <= last], last), fresh

    def nearest(
        self,
        queries: Queries,
        k: int,
        radius: int,
        allowed: Bitmaps | None,
        pool: ThreadPoolExecutor,
        threads: int,
        looked_at: NDArray[np.int64],
    ) -> list[Near]:
        """The k best items of each query, of those that differ in at most `radius` bits. The number of codes that each
        query was compared with is added to `looked_at`."""
        allowed = allowed or (self.present, self.fresh.present)
        context, radius = SearchContext(allowed, pool, threads, looked_at), min(radius, queries.bits)
        if queries.bits <= self.bits:
            return self._best(word_queries(queries, radius), k, context)
        if self.ranks_all:
            return self.whole._best(joined_queries(queries, self.bits, radius), k, context)
        first = word_queries(queries.first_bits(self.bits), min(radius, self.bits))
        count = max(min(max(CANDIDATES, PER_HIT * k), self.items), 1)
        if not scan.is_compiled():
            candidates = self._nearest(first, max(count, self.items // ITEMS_PER_CANDIDATE), context)
        elif radius < queries.bits:
            candidates = self._nearest(first, count, context)
        else:
            candidates = self._first_stage(first, count, context)
        last = word_queries(queries.last_bits(self.bits), radius)
        return [self._reranked(first, last, q, candidates[q], k, count < self.items) for q in range(len(queries))]

    def _best(self, queries: WordQueries, k: int, context: SearchContext) -> list[Near]:
        """The k best of all items, by the codes that are in memory."""
        best = self._nearest(queries, max(min(k, self.items), 1), context)
        return [Near(self._rows(c.slots, c.fresh), c.distances.tolist(), True) for c in best]

    def _nearest(self, queries: WordQueries, count: int, context: SearchContext) -> list[Candidates]:
        heaps, fresh_heaps = self.search(queries, count, context)
        return [self._candidates(queries, q, heaps[q], fresh_heaps[q], context.allowed[1]) for q in range(len(queries))]

    def _first_stage(self, queries: WordQueries, count: int, context: SearchContext) -> list[Candidates]:
        """Candidates of each query by the compiled kernels: `count` by hashing, or more of them by a scan."""
        allowed, pool, threads, looked_at = context
        self._prepare(queries, pool, threads)
        looked_at += len(self.fresh.codes)
        if len(queries) == 1 or threads == 1:
            several = pool if threads > 1 and self.base.codes.size >= SPLIT else None
            parts = (count, allowed, several, threads)
            return [self._near(queries.select([q]), *parts, looked_at[q : q + 1]) for q in range(len(queries))]

        def near(q: int) -> Candidates:
            return self._near(queries.select([q]), count, allowed, None, 1, looked_at[q : q + 1])

        return list(pool.map(near, range(len(queries))))

    def _near(
        self,
        query: WordQueries,
        count: int,
        allowed: Bitmaps,
        pool: ThreadPoolExecutor | None,
        threads: int,
        looked: NDArray[np.int64],
    ) -> Candidates:
        heaps, fresh_heaps = query.new_heaps(count), query.new_heaps(count)
        tables, codes, costs = self.base.tables, self.base.codes, self._judgement(query).costs
        scan.scan_compiled(query, self.fresh.codes, 0, len(self.fresh.codes), allowed[1], fresh_heaps)
        if tables is not None and costs is not None:
            budget = costs.budget(len(codes))
            if self._hash(tables, query, 0, allowed[0], budget, heaps[0], looked):
                return self._candidates(query, 0, heaps[0], fresh_heaps[0], allowed[1])
        self.base.check("codes")
        looked += len(codes)
        wanted = max(count, len(codes) // ITEMS_PER_CANDIDATE)
        near = scan.near_by_sample(query, codes, allowed[0], wanted, pool, threads)
        if near is None:
            scan.scan_compiled(query, codes, 0, len(codes), allowed[0], heaps)
            return self._candidates(query, 0, heaps[0], fresh_heaps[0], allowed[1])
        fresh, fresh_distances = scan.read_heap(fresh_heaps[0], int(query.limits[0]))
        bounds = [near.beyond] + ([int(fresh_distances[-1])] if len(fresh) == count else [])
        return Candidates(near.slots, fresh, np.concatenate((near.distances, fresh_distances)), min(bounds))

    def _candidates(self, queries: WordQueries, q: int, heap: Keys, fresh_heap: Keys, allowed: Words) -> Candidates:
        limit, k = int(queries.limits[q]), len(heap)
        slots, distances = scan.read_heap(heap, limit)
        fresh, fresh_distances = scan.read_heap(fresh_heap, limit)
        if len(fresh) == k:
            fresh = self._with_ties(queries, q, fresh, fresh_distances, distances, allowed)
        nearer = [int(part[-1]) for part in (distances, fresh_distances) if len(part) == k]
        return Candidates(slots, fresh, np.concatenate((distances, fresh_distances)), min(nearer, default=None))

    def _rows(self, slots: Slots, fresh: Slots) -> list[int]:
        rows: list[int] = np.concatenate((self.base.rows_of(slots), self.fresh.rows[fresh])).tolist()
        return rows

    def _with_ties(
        self, queries: WordQueries, q: int, slots: Slots, distances: Distances, others: Distances, allowed: Words
    ) -> Slots:
        """The best fresh slots, where those that tie last are the ones with the smallest ids. Only they need a choice,
        and only if the answer reaches as far."""
        last, k = distances[-1], len(slots)
        if (distances < last).sum() + (others < last).sum() >= k:
            return slots
        near, near_distances = scan.within(queries, q, int(last), self.fresh.codes)
        ties = near[(near_distances == last) & scan.are_allowed(near, allowed)]
        nearer = slots[distances < last]
        return np.concatenate((nearer, nsmallest(k - len(nearer), ties.tolist(), key=self.fresh.ids.__getitem__)))

    def _reranked(
        self, first: WordQueries, last: WordQueries, q: int, candidates: Candidates, k: int, others: bool
    ) -> Near:
        """The k best of the candidates by all bits, with those that tie last. `others`: there are other items."""
        slots, fresh = candidates.slots, candidates.fresh
        self.base.check_rest(slots)
        parts = ((self.base.rest_codes, slots), (self.fresh.rest_codes, fresh))
        distances = candidates.distances + np.concatenate([scan.rest_distances(last, q, *part) for part in parts])
        within = np.ones(len(distances), np.bool_)
        if last.radius < self.bits + 64 * last.words.shape[1]:
            words = np.concatenate((self.base.codes[slots], self.fresh.codes[fresh]))
            rest_words = np.concatenate((self.base.rest_codes[slots], self.fresh.rest_codes[fresh]))
            within = scan.differing(first, q, words) + scan.differing(last, q, rest_words) <= last.radius
        inside = distances[within]
        best = np.sort(np.partition(inside, k)[:k] if len(inside) > k else inside)
        bound = candidates.beyond if others else None
        proven = bound is None or (len(best) == k and bool(best[-1] < bound))
        within &= distances <= best.max(initial=0)
        of_fresh = within[len(slots) :]
        return Near(self._rows(slots[within[: len(slots)]], fresh[of_fresh]), distances[within].tolist(), proven)

    def search(self, queries: WordQueries, k: int, context: SearchContext) -> tuple[Keys, Keys]:
        """The k best keys of each query in the code file and among the fresh items, by the first bits."""
        allowed, pool, threads, looked_at = context
        looked_at += len(self.fresh.codes)
        base, fresh = allowed
        heaps, fresh_heaps = queries.new_heaps(k), queries.new_heaps(k)
        if scan.use_numpy(len(queries) * (self.base.codes.size + self.fresh.codes.size)):
            self.base.check("codes")
            scan.scan_with_numpy(queries, self.base.codes, base, heaps)
            scan.scan_with_numpy(queries, self.fresh.codes, fresh, fresh_heaps)
            looked_at += len(self.base.codes)
            return heaps, fresh_heaps
        self._prepare(queries, pool, threads)
        if len(queries) > 1 and threads > 1:
            parts = [slice(i, None, threads) for i in range(min(threads, len(queries)))]

            def search_part(part: slice) -> Keys:
                return self._search_base(queries.select(part), base, heaps[part], looked_at[part])

            for part, part_heaps in zip(parts, pool.map(search_part, parts), strict=True):
                heaps[part] = part_heaps
        else:
            heaps = self._search_base(queries, base, heaps, looked_at, pool if threads > 1 else None, threads)
        scan.scan_compiled(queries, self.fresh.codes, 0, len(self.fresh.codes), fresh, fresh_heaps)
        return heaps, fresh_heaps

    def _prepare(self, queries: WordQueries, pool: ThreadPoolExecutor, threads: int) -> None:
        """Compare with checksums what every search reads, and measure once how fast hashing is."""
        tables, judgement = self.base.tables, self._judgement(queries)
        self._check_read(pool, threads)
        if tables is not None and judgement.costs is None:
            judgement.costs = mih.measure_costs(self.base.codes, tables, queries.planes is not None)

    def _check_read(self, pool: ThreadPoolExecutor | None = None, threads: int = 1) -> None:
        """Compare with checksums what every search reads."""
        tables = self.base.tables
        if tables is None or not tables.copies.size:
            self.base.check("codes", pool, threads)
        if tables is not None:
            self.base.check("offsets")

    def _search_base(
        self,
        queries: WordQueries,
        allowed: Words,
        heaps: Keys,
        looked: NDArray[np.int64],
        pool: ThreadPoolExecutor | None = None,
        threads: int = 1,
    ) -> Keys:
        """The k best keys of each query in the code file: by hashing, and by a scan for those where it gave up."""
        heaps = np.ascontiguousarray(heaps)
        codes, tables, costs = self.base.codes, self.base.tables, self._judgement(queries).costs
        left = list(range(len(queries)))
        if tables is not None and costs is not None:
            budget = costs.budget(len(codes))
            left = [q for q in left if not self._hash(tables, queries, q, allowed, budget, heaps[q], looked[q : q + 1])]
        if not left:
            return heaps
        self.base.check("codes", pool, threads)
        left_heaps, left_queries = np.ascontiguousarray(heaps[left]), queries.select(left)
        looked[left] += len(codes)
        if pool is None or codes.size < SPLIT:
            scan.scan_compiled(left_queries, codes, 0, len(codes), allowed, left_heaps)
        else:
            left_heaps = _scan_in_parts(left_queries, codes, allowed, left_heaps, pool, threads)
        heaps[left] = left_heaps
        return heaps

    def _hash(
        self,
        tables: mih.Tables,
        queries: WordQueries,
        q: int,
        allowed: Words,
        budget: int,
        heap: Keys,
        looked: NDArray[np.int64],
    ) -> bool:
        """Whether hashing found the k best. If not, the heap is empty again, but with a tighter bound on distances."""
        judgement = self._judgement(queries)
        judgement.give_ups += 1
        if judgement.give_ups > GIVE_UPS and judgement.give_ups % RETRY:
            return False
        bound = heap[0]
        items = tables.search(queries, q, self.base.codes, allowed, int(FREE * budget), budget, heap)
        looked += abs(items)
        if items >= 0:
            judgement.give_ups = 0
            return True
        heap[:] = min(bound, ((heap[0] >> np.uint64(32)) + np.uint64(1)) << np.uint64(32))
        return False

    def _judgement(self, queries: WordQueries) -> Judgement:
        return self.judgements[queries.planes is not None]

    def prepared(self, before: "Snapshot | None") -> "Snapshot":
        """This one, with what its first search would do done: comparing with checksums what every search reads. How
        fast hashing is, is known from the snapshot `before`, of an earlier code file of the same index."""
        self.base.check("rows")
        self._check_read()
        if self.ranks_all and self.base.rest_codes.size:
            _ = self.base.whole
        if before is None or (before.base.tables is None) != (self.base.tables is None):
            return self
        return replace(self, judgements=before.judgements)

    def caught_up(self, store: Store, mark: Mark) -> "Snapshot":
        """The snapshot of the state of the store's current transaction, whose mark is `mark`."""
        if mark == self.mark:
            return self
        newly_removed = store.removed_since(self.mark.removal)
        rows, ids, blob = store.added_since(self.mark.row)
        codes = np.frombuffer(blob, np.uint8).reshape(len(ids), store.code_bits // 8)
        fresh = self.fresh.changed(newly_removed, rows, ids, codes, self.bits)
        of_base = newly_removed[newly_removed <= self.base.last_row]
        removed = np.concatenate((self.removed, of_base))
        present = self._without(of_base, removed) if len(of_base) else self.present
        return Snapshot(self.base, self.bits, removed, present, fresh, mark, self.judgements)

    def _without(self, newly_removed: NDArray[np.int64], removed: NDArray[np.int64]) -> Words:
        """The bitmap of the slots that are still there."""
        self.base.check("rows")
        size = len(self.base.rows)
        if len(newly_removed) > FEW_REMOVED:
            return ~_slots_of(self.base.rows, removed, self.base.last_row)
        bits = self.present.copy() if len(self.present) else np.full(size // 64 + 1, ~np.uint64(0))
        for row in newly_removed.tolist():
            for slot in np.flatnonzero(self.base.rows == row).tolist():
                bits[slot >> 6] &= ~np.uint64(1 << (slot & 63))
        return bits


def snapshot_of(base: CodeFile, bits: int) -> Snapshot:
    """The state at which a code file was made."""
    none = np.empty(0, np.int64)
    no_items = Fresh([], none, base.codes[:0], base.rest_codes[:0], np.empty(0, np.bool_))
    return Snapshot(base, bits, none, ALL, no_items, base.mark)


def _scan_in_parts(
    queries: WordQueries, codes: Words, allowed: Words, heaps: Keys, pool: ThreadPoolExecutor, threads: int
) -> Keys:
    """One scan on several threads: each takes a range of the items, with heaps of its own."""
    edges = [len(codes) * i // threads for i in range(threads + 1)]

    def scan_part(i: int) -> Keys:
        own = heaps.copy()
        scan.scan_compiled(queries, codes, edges[i], edges[i + 1], allowed, own)
        return own

    together = np.concatenate(list(pool.map(scan_part, range(threads))), axis=1)
    return np.partition(together, heaps.shape[1] - 1, axis=1)[:, : heaps.shape[1]]


def _bitmap(members: NDArray[np.int64], size: int) -> Words:
    """A bitmap of numbers below `size`. It is never empty, since an empty one stands for all numbers."""
    bits = np.zeros((size // 64 + 1) * 64, np.bool_)
    bits[members] = True
    return np.packbits(bits, bitorder="little").view("<u8")


def _slots_of(rows: NDArray[Any], members: NDArray[np.int64], last: int) -> Words:
    """A bitmap of the slots whose row is one of `members`, which are at most `last`."""
    wanted = np.zeros(last + 2, np.bool_)
    wanted[members] = True
    return _bitmap(np.flatnonzero(wanted[np.minimum(rows, last + 1)]), len(rows))
