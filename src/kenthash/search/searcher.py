"""Exact search of the codes of one store: what a local engine keeps in memory for it.

A `Snapshot` is one state of the store, ready to search: the code file, which of its items were removed, and the items
added since (`fresh`). These are in memory in the order of ids, like the file, and are scanned; the two results are
merged by distance and id. A snapshot never changes: catching up with the store makes a new one, so that searches under
way are not disturbed. The `Searcher` keeps the newest one, has the code file rebuilt where it is damaged or too far
behind, and takes ids and metadata from the store, in the transaction in which it has found the rows.
"""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.errors import DataError, KenthashError
from kenthash.search import codefile, mih, scan
from kenthash.search.checksums import DamagedCodeFile
from kenthash.search.codefile import CodeFile, to_words
from kenthash.search.engine import Hits
from kenthash.search.filters import Filter, matches
from kenthash.search.scan import Keys, Words
from kenthash.search.schema import damaged
from kenthash.search.store import Mark, Store

logger = logging.getLogger(__name__)

ALL = np.empty(0, np.uint64)  # a bitmap that allows every slot
SPLIT = 1 << 21  # words of codes from which one query is scanned by several threads
GIVE_UPS, RETRY = 8, 16  # after so many searches in a row in which hashing gave up, one in RETRY tries it
FREE = 0.02  # share of a scan's cost that hashing may spend before it is judged

ATTEMPTS = 5  # at a transaction that is not older than the snapshot
NEAREST_FIRST = 256  # nearest items that a filter is tested on before it is tested on all items
FEW_QUERIES = 16  # for which that is worth it
REBUILD_PAUSE = 60.0  # seconds until a code file that could not be written is tried again: it means reading all items
FILE_CHECK_SECONDS = 1.0  # how often the code file is looked at for changes by others


@dataclass(frozen=True)
class Fresh:
    """Items that are not in the code file."""

    ids: list[str]
    rows: NDArray[np.int64]
    codes: Words  # [n, W]


@dataclass(frozen=True)
class Snapshot:
    base: CodeFile
    removed: NDArray[np.int64]  # rows that are in the code file and no longer in the store
    present: Words  # bitmap of the slots of the code file that were not removed; empty where none was
    fresh: Fresh
    mark: Mark
    costs: list[mih.Costs] = field(default_factory=list)  # measured when first needed; shared with later snapshots
    give_ups: list[int] = field(default_factory=lambda: [0])  # of hashing, in a row; it decides about speed only

    @property
    def items(self) -> int:
        return len(self.base.codes) - len(self.removed) + len(self.fresh.ids)

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
        """The k best keys of each query in the code file and among the fresh items. The number of codes that each query
        was compared with is added to `looked_at`, if given."""
        looked = np.zeros(len(queries), np.int64) if looked_at is None else looked_at
        looked += len(self.fresh.codes)
        base, fresh = allowed or (self.present, ALL)
        heaps, fresh_heaps = (scan.new_heaps(len(queries), k, radius) for _ in range(2))
        if scan.use_numpy(len(queries) * (self.base.codes.size + self.fresh.codes.size)):
            self.base.check("codes")
            scan.scan_with_numpy(queries, self.base.codes, base, heaps)
            scan.scan_with_numpy(queries, self.fresh.codes, fresh, fresh_heaps)
            looked += len(self.base.codes)
            return heaps, fresh_heaps
        from kenthash.search import kernels

        tables = self.base.tables
        if tables is None or not tables.copies.size:
            self.base.check("codes", pool, threads)
        if tables is not None:
            self.base.check("offsets")
        if tables is not None and not self.costs:
            self.costs.append(mih.measure_costs(self.base.codes, tables))
        if len(queries) > 1 and threads > 1:
            parts = [slice(i, None, threads) for i in range(min(threads, len(queries)))]
            for part, done in zip(
                parts,
                pool.map(lambda part: self._search_base(queries[part], base, heaps[part], looked[part]), parts),
                strict=True,
            ):
                heaps[part] = done
        else:
            heaps = self._search_base(queries, base, heaps, looked, pool if threads > 1 else None, threads)
        kernels.scan(queries, self.fresh.codes, 0, len(self.fresh.codes), fresh, fresh_heaps)
        return heaps, fresh_heaps

    def _search_base(
        self,
        queries: Words,
        allowed: Words,
        heaps: Keys,
        looked: NDArray[np.int64],
        pool: ThreadPoolExecutor | None = None,
        threads: int = 1,
    ) -> Keys:
        """The k best keys of each query in the code file: by hashing, and by a scan for those where it gave up."""
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
        """Whether hashing found the k best. If not, the heap is empty again, but with a tighter bound on distances."""
        self.give_ups[0] += 1
        if self.give_ups[0] > GIVE_UPS and self.give_ups[0] % RETRY:
            return False
        bound = heap[0]
        items = tables.search(query, self.base.codes, allowed, int(FREE * budget), budget, heap)
        looked += abs(items)
        if items >= 0:
            self.give_ups[0] = 0
            return True
        heap[:] = min(bound, ((heap[0] >> np.uint64(32)) + np.uint64(1)) << np.uint64(32))
        return False

    def caught_up(self, store: Store, mark: Mark) -> "Snapshot":
        """The snapshot of the state of the store's current transaction, whose mark is `mark`."""
        if mark == self.mark:
            return self
        newly_removed = store.removed_since(self.mark.removal)
        kept = ~np.isin(self.fresh.rows, newly_removed)
        ids = [name for name, is_kept in zip(self.fresh.ids, kept, strict=True) if is_kept]
        added_rows, added_ids, added_codes = store.added_since(self.mark.row)
        ids += added_ids
        rows = self.fresh.rows[kept].tolist() + added_rows
        codes = np.concatenate((self.fresh.codes[kept], to_words(added_codes, len(added_ids), store.bits)))
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)  # mostly sorted already: cheap
        fresh = Fresh([ids[i] for i in order], np.array(rows, np.int64)[order], np.ascontiguousarray(codes[order]))
        removed = np.concatenate((self.removed, newly_removed[newly_removed <= self.base.last_row]))
        present = self.present
        if len(removed) > len(self.removed):
            self.base.check("rows")
            present = _slots_of(self.base.rows, removed, self.base.last_row, False)
        return Snapshot(self.base, removed, present, fresh, mark, self.costs, self.give_ups)


def snapshot_of(base: CodeFile) -> Snapshot:
    """The state at which a code file was made."""
    no_items = Fresh([], np.empty(0, np.int64), base.codes[:0])
    return Snapshot(base, np.empty(0, np.int64), ALL, no_items, base.mark)


def _scan_in_parts(
    queries: Words, codes: Words, allowed: Words, heaps: Keys, pool: ThreadPoolExecutor, threads: int
) -> Keys:
    """One scan on several threads: each takes a range of the items, with heaps of its own."""
    from kenthash.search import kernels

    edges = [len(codes) * i // threads for i in range(threads + 1)]

    def scan_part(i: int) -> Keys:
        own = heaps.copy()
        kernels.scan(queries, codes, edges[i], edges[i + 1], allowed, own)
        return own

    together = np.concatenate(list(pool.map(scan_part, range(threads))), axis=1)
    return np.partition(together, heaps.shape[1] - 1, axis=1)[:, : heaps.shape[1]]


def _bitmap(members: NDArray[np.int64], size: int) -> Words:
    """A bitmap of numbers below `size`. It is never empty, since an empty one stands for all numbers."""
    bits = np.zeros((size // 64 + 1) * 64, np.bool_)
    bits[members] = True
    return np.packbits(bits, bitorder="little").view("<u8")


def _slots_of(rows: NDArray[Any], members: NDArray[np.int64], last: int, value: bool) -> Words:
    """A bitmap of the slots whose row is (value True) or is not (False) one of `members`, which are at most `last`."""
    wanted = np.zeros(last + 2, np.bool_)
    wanted[members] = True
    return _bitmap(np.flatnonzero(wanted[np.minimum(rows, last + 1)] == value), len(rows))


class Searcher:
    """Searches the codes of one store, those of the items or those of their texts, in its newest state."""

    def __init__(self, bits: int, pool: ThreadPoolExecutor, threads: int) -> None:
        self.bits, self._pool, self.threads = bits, pool, threads
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._unusable: Path | None = None  # a damaged code file that could not be rebuilt
        self._next_rebuild = 0.0  # by the monotonic clock: not before this is the code file rebuilt
        self._next_file_check = 0.0  # by the same clock: when to test whether others have changed the code file
        self._last_filter: tuple[str, Snapshot, tuple[Words, Words]] | None = None

    def search(self, store: Store, codes: Codes, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        if not len(codes):
            return []
        queries = to_words(np.ascontiguousarray(codes).tobytes(), len(codes), self.bits)
        max_distance = self.bits if radius is None else radius
        for attempt in count():
            damage = None
            with store.reading():
                mark = store.mark()
                rebuild = attempt == 0 and self._may_need_rebuild(mark)
                try:
                    state = None if rebuild else self._current(store, mark, last_attempt=attempt >= ATTEMPTS)
                    if state is not None:
                        if filter is None:
                            return self._nearest(store, state, queries, k, max_distance, None)
                        return self._filtered_search(store, state, queries, k, max_distance, filter)
                except DamagedCodeFile as error:
                    damage = error
            if rebuild:
                self._rebuild_if_needed(store)
            elif damage is not None:
                self._rebuild_damaged(store, damage, give_up=attempt >= ATTEMPTS)
        raise AssertionError("there is always another attempt")

    def _filtered_search(
        self, store: Store, state: Snapshot, queries: Words, k: int, radius: int, filter: Filter
    ) -> list[Hits]:
        """If the filter is true of k of the nearest items, those are the answer; if not, it is tested on all items."""
        if len(queries) > FEW_QUERIES:
            return self._nearest(store, state, queries, k, radius, self._allowed(store, state, filter))
        first = max(NEAREST_FIRST, 4 * k)
        near = self._nearest(store, state, queries, first, radius, None)
        answers = [_matching(hits, filter, k) for hits in near]
        short = [q for q in range(len(near)) if len(answers[q]) < k and len(near[q]) == first]
        if short:
            rest = self._nearest(store, state, queries[short], k, radius, self._allowed(store, state, filter))
            for q, hits in zip(short, rest, strict=True):
                answers[q] = replace(hits, looked_at=(hits.looked_at or 0) + (near[q].looked_at or 0))
        return answers

    def _allowed(self, store: Store, state: Snapshot, filter: Filter) -> tuple[Words, Words]:
        """The slots for which a filter is true; those of the last filter are cached."""
        text = repr(filter)  # filters themselves do not tell `a = 1` from `a = true`, since to Python 1 equals True
        last = self._last_filter
        if last is None or last[0] != text or last[1] is not state:
            last = (text, state, state.allowed(store.rows_matching(filter)))
            self._last_filter = last
        return last[2]

    def _nearest(
        self, store: Store, state: Snapshot, queries: Words, k: int, radius: int, allowed: tuple[Words, Words] | None
    ) -> list[Hits]:
        """The nearest of both parts, merged by distance and id, with metadata from the store."""
        looked_at = np.zeros(len(queries), np.int64)
        most = max(min(k, state.items), 1)
        heaps = state.search(queries, most, radius, allowed, self._pool, self.threads, looked_at)
        near = [_rows(state, base, fresh, radius) for base, fresh in zip(*heaps, strict=True)]
        items = store.items_of(sorted({row for rows, _ in near for row in rows}))
        try:
            best = [
                sorted((d, *items[row]) for d, row in zip(distances, rows, strict=True))[:k] for rows, distances in near
            ]
        except KeyError as error:
            raise self._disagreement(store, state, f"there is no item in row {error}") from error
        counts = [len(hits) for hits in best]
        codes = np.frombuffer(store.join_codes([code for hits in best for *_, code in hits]), np.uint8)
        codes = codes.reshape(-1, self.bits // 8)
        distances = np.array([hit[0] for hits in best for hit in hits], np.int64)
        repeated = np.repeat(queries.view(np.uint8)[:, : self.bits // 8], counts, axis=0)
        wrong = np.flatnonzero(np.bitwise_count(repeated ^ codes).sum(axis=1, dtype=np.int64) != distances)
        if len(wrong):
            name = [hit[1] for hits in best for hit in hits][wrong[0]]
            raise self._disagreement(store, state, f"the code of {name!r} is not the one that was indexed")
        answers, end = [], 0
        for hits, looked in zip(best, looked_at.tolist(), strict=True):
            start, end = end, end + len(hits)
            entries = store.parse_metadata([entry for _, _, entry, _ in hits])
            names = [name for _, name, _, _ in hits]
            answers.append(Hits(names, distances[start:end], entries, codes[start:end], looked))
        return answers

    def _disagreement(self, store: Store, state: Snapshot, what: str) -> DataError:
        """The error for a store that differs from the code file; DamagedCodeFile where the file is the damaged one."""
        if state.base.mapped is not None:
            state.base.mapped.check_everything()
        return damaged(store.path, what)

    def _current(self, store: Store, mark: Mark, last_attempt: bool) -> Snapshot | None:
        """The snapshot of the store's transaction, whose mark is `mark`: the newest one, caught up; or a new one from
        the code file. None where another thread has caught up with a later state: this transaction began too early."""
        with self._lock:
            state = self._snapshot
            if state is not None and self._is_file_changed(state):
                state = None
            if state is not None and state.mark == mark:
                return state
            ahead = state is not None and (state.mark.row > mark.row or state.mark.removal > mark.removal)
            if ahead and not last_attempt:
                return None
            if state is None or ahead or state.mark.removal < store.log_start():
                usable = codefile.current_path(store) != self._unusable
                base = codefile.current_code_file(store) if usable else None
                state = snapshot_of(base or codefile.empty_code_file(-(-self.bits // 64)))
                if state.mark.row > mark.row or state.mark.removal > mark.removal:
                    raise damaged(store.path, "its code file is ahead of it")
            self._snapshot = state.caught_up(store, mark)
            return self._snapshot

    def _is_file_changed(self, state: Snapshot) -> bool:
        """Whether somebody else has written to the code file. Not tested in every search: a system call would make a
        search a tenth slower."""
        now = time.monotonic()
        if state.base.mapped is None or now < self._next_file_check:
            return False
        self._next_file_check = now + FILE_CHECK_SECONDS
        return state.base.mapped.is_changed()

    def _may_need_rebuild(self, mark: Mark) -> bool:
        """Whether the code file of the newest snapshot is too far behind; the store may name another by now."""
        state = self._snapshot
        return time.monotonic() >= self._next_rebuild and (state is None or codefile.is_far_behind(state.base, mark))

    def _needs_rebuild(self, store: Store) -> bool:
        """Whether the code file that the store names is too far behind."""
        try:
            return codefile.is_far_behind(codefile.current_code_file(store), store.mark())
        except DamagedCodeFile as damage:
            return damage.path == self._unusable  # any other is rebuilt when it is read

    def _rebuild_if_needed(self, store: Store) -> None:
        try:
            if self._needs_rebuild(store):
                codefile.compact(store, self.threads, partial(self._needs_rebuild, store))
        except KenthashError as error:  # such as a reader that may not write: then the rest is held in memory
            logger.info("the code file was not rebuilt: %s", error)
            self._next_rebuild = time.monotonic() + REBUILD_PAUSE
            return
        with self._lock:  # the next snapshot begins from the new file, whether this or another thread made it
            self._snapshot = None

    def compact(self, store: Store) -> None:
        codefile.compact(store, self.threads)
        with self._lock:
            self._snapshot = None

    def _rebuild_damaged(self, store: Store, damage: DamagedCodeFile, give_up: bool) -> None:
        """Rebuild a damaged code file. Where that cannot be done, all codes are held in memory."""
        try:
            if give_up:
                raise KenthashError("it is damaged again and again")
            codefile.rebuild_damaged(store, damage, self.threads)
        except KenthashError as error:
            logger.warning("%s: searching without it: %s", damage, error)
            self._next_rebuild = time.monotonic() + REBUILD_PAUSE
            self._unusable = damage.path
        with self._lock:
            self._snapshot = None


def _rows(state: Snapshot, base: Keys, fresh: Keys, radius: int) -> tuple[list[int], list[int]]:
    """The rows and distances of one query's finished heaps."""
    rows, distances = state.base.read_heap(base, radius)
    if len(state.fresh.rows):
        slots, near = scan.read_heap(fresh, radius)
        rows += state.fresh.rows[slots].tolist()
        distances += near.tolist()
    return rows, distances


def _matching(hits: Hits, filter: Filter, k: int) -> Hits:
    """The first k hits for which a filter is true."""
    kept = [i for i, entry in enumerate(hits.metadata) if matches(filter, entry)][:k]
    assert hits.codes is not None
    entries = [hits.metadata[i] for i in kept]
    return Hits([hits.ids[i] for i in kept], hits.distances[kept], entries, hits.codes[kept], hits.looked_at)
