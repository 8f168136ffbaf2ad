"""The local engine: an SQLite file as the truth, a code file for speed, exact search on all cores of one machine.

Threads may search at once, each call with a connection of its own; the kernels hold no interpreter lock. Several
processes may open one index: writers take turns, and every search sees one state of the store, from its codes to its
metadata.
"""

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.progress import cores
from kenthash.search import codefile, compaction, scan, snapshot
from kenthash.search.blocks import Damaged
from kenthash.search.codefile import to_words
from kenthash.search.connections import Connections
from kenthash.search.engine import MAX_TEXTS, Hits, Item, Metadata, Stats, texts_of
from kenthash.search.filters import Filter, matches
from kenthash.search.scan import Keys, Words
from kenthash.search.schema import damaged
from kenthash.search.snapshot import Snapshot
from kenthash.search.store import FORMS, Mark, Store
from kenthash.search.text_store import SEPARATOR, TextStore

logger = logging.getLogger(__name__)

PAUSE = 60.0  # seconds until a code file that could not be written is tried again: it means reading all items
LOOK_AGAIN = 1.0  # seconds
ATTEMPTS = 5  # at a transaction that suits the newest state
FIRST_LOOK = 256  # nearest items asked whether the filter is true of them, before all items are
FEW = 16  # queries for which that is worth it


class LocalEngine:
    """`form` says what a code file holds besides codes and rows: tables with copies of the codes ("fast", in all 56
    bytes an item at 64 bits), tables without ("compact", 24), or none ("scan", 12). Beyond 2^24 items a slot takes a
    byte more in each of the four tables: 60 and 28. All forms give the same answers."""

    def __init__(self, store: Store) -> None:
        self.bits, self.path = store.bits, store.path
        self.threads = cores()
        self._pool = ThreadPoolExecutor(self.threads)
        self.connections = Connections(store, at_end=partial(self._pool.shutdown, wait=False))
        self._items, self._texts = (Searcher(self.bits, self._pool, self.threads) for _ in range(2))

    @classmethod
    def create(cls, target: str | Path, bits: int, form: str = "fast") -> "LocalEngine":
        if form not in FORMS:
            raise UsageError(f"form {form!r}: must be one of {', '.join(FORMS)}")
        return cls(Store.create(Path(target), bits, form))

    @classmethod
    def open(cls, target: str | Path) -> "LocalEngine":
        return cls(Store.open(Path(target)))

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        with self.connections.one() as store:
            store.add(ids, codes, metadata)

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        with self.connections.one() as store:
            store.upsert(ids, codes, metadata)

    def remove(self, ids: Sequence[str]) -> int:
        with self.connections.one() as store:
            return store.remove(ids)

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        with self.connections.one() as store:
            return store.get(ids)

    def list_ids(self, after: str, limit: int) -> list[str]:
        with self.connections.one() as store:
            return store.list_ids(after, limit)

    def put_texts(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        with self.connections.one() as store:
            TextStore(store).put(ids, metadata, codes)

    def count_texts(self, ids: Sequence[str]) -> list[int]:
        with self.connections.one() as store:
            texts = TextStore(store)
            return texts.counts(ids) if texts.exists() else [0] * len(ids)

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        with self.connections.one() as store:
            return store.label_counts(limit)

    def notes(self) -> dict[str, str]:
        with self.connections.one() as store:
            return store.notes()

    def note(self, key: str, value: str) -> None:
        with self.connections.one() as store:
            store.note(key, value)

    def search(self, codes: Codes, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        with self.connections.one() as store:
            return self._items.search(store, codes, k, radius, filter)

    def search_texts(self, codes: Codes, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        """The nearest MAX_TEXTS * k texts are of k items at least, often far fewer are. An item counts by its first."""
        answers = [_no_hits(self.bits)] * len(codes)
        with self.connections.one() as store:
            texts = TextStore(store)
            for count in (2 * k, MAX_TEXTS * k) if texts.exists() else ():
                found = self._texts.search(texts, codes, count, radius, filter)
                try:
                    answers = [_by_item(hits, k) for hits in found]
                except IndexError as error:
                    raise damaged(self.path, "an item has fewer texts than there are codes of them") from error
                if all(len(own) == k or len(hits) < count for own, hits in zip(answers, found, strict=True)):
                    break
        return answers

    def compact(self) -> None:
        with self.connections.one() as store:
            self._items.compact(store)
            texts = TextStore(store)
            if texts.exists():
                self._texts.compact(texts)

    def stats(self) -> Stats:
        files = [self.path, self.path.with_name(self.path.name + "-wal")]
        with self.connections.one() as store:
            try:
                base = compaction.code_file(store)
            except Damaged:
                base = None
            items, form = store.count(), store.form
        size = sum(file.stat().st_size for file in files if file.exists()) + (base.bytes if base else 0)
        return Stats(
            "local",
            items,
            self.bits,
            size,
            {
                "form": form,
                "in the code file": len(base.codes) if base else 0,
                "code file bytes": base.bytes if base else 0,
                "tables": len(base.tables.cuts) if base and base.tables else 0,
            },
        )

    def close(self) -> None:
        self.connections.close()


class Searcher:
    """Exact search of the codes of one store, those of the items or those of their texts: what it keeps in memory."""

    def __init__(self, bits: int, pool: ThreadPoolExecutor, threads: int) -> None:
        self.bits, self._pool, self.threads = bits, pool, threads
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._unusable: Path | None = None  # a damaged code file that could not be replaced
        self._not_before = 0.0  # by the monotonic clock: when the code file may be tried again
        self._look_again = 0.0  # by the same clock: when to look whether the code file has been changed
        self._filtered: tuple[str, Snapshot, tuple[Words, Words]] | None = None

    def search(self, store: Store, codes: Codes, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        if not len(codes):
            return []
        queries = to_words(np.ascontiguousarray(codes).tobytes(), len(codes), self.bits)
        reach = self.bits if radius is None else radius
        for attempt in count():
            damage = None
            with store.reading():
                mark = store.mark()
                due = attempt == 0 and self._is_due(mark)
                try:
                    state = None if due else self._current(store, mark, last=attempt >= ATTEMPTS)
                    if state is not None:
                        if filter is None:
                            return self._nearest(store, state, queries, k, reach, None)
                        return self._filtered_search(store, state, queries, k, reach, filter)
                except Damaged as error:
                    damage = error
            if due:
                self._compact(store)
            elif damage is not None:
                self._replace(store, damage, give_up=attempt >= ATTEMPTS)
        raise AssertionError("there is always another attempt")

    def _filtered_search(
        self, store: Store, state: Snapshot, queries: Words, k: int, radius: int, filter: Filter
    ) -> list[Hits]:
        """If the filter is true of k of the nearest few, those are the answer; if not, it is asked of all items."""
        if len(queries) > FEW:
            return self._nearest(store, state, queries, k, radius, self._allowed(store, state, filter))
        look = max(FIRST_LOOK, 4 * k)
        near = self._nearest(store, state, queries, look, radius, None)
        answers = [_matching(hits, filter, k) for hits in near]
        short = [q for q in range(len(near)) if len(answers[q]) < k and len(near[q]) == look]
        if short:
            rest = self._nearest(store, state, queries[short], k, radius, self._allowed(store, state, filter))
            for q, hits in zip(short, rest, strict=True):
                answers[q] = replace(hits, looked_at=(hits.looked_at or 0) + (near[q].looked_at or 0))
        return answers

    def _allowed(self, store: Store, state: Snapshot, filter: Filter) -> tuple[Words, Words]:
        """The slots for which a filter is true; those of the last filter are kept."""
        text = repr(filter)  # filters themselves do not tell `a = 1` from `a = true`, since to Python 1 equals True
        last = self._filtered
        if last is None or last[0] != text or last[1] is not state:
            last = (text, state, state.allowed(store.matching(filter)))
            self._filtered = last
        return last[2]

    def _nearest(
        self, store: Store, state: Snapshot, queries: Words, k: int, radius: int, allowed: tuple[Words, Words] | None
    ) -> list[Hits]:
        """The nearest of both parts, merged by distance and id, with metadata from the store."""
        looked_at = np.zeros(len(queries), np.int64)
        most = max(min(k, state.items), 1)
        base, fresh = state.search(queries, most, radius, allowed, self._pool, self.threads, looked_at)
        found = [_rows(state, old, new, radius) for old, new in zip(base, fresh, strict=True)]
        named = store.named(sorted({row for rows, _ in found for row in rows}))
        try:
            best = [
                sorted((d, *named[row]) for d, row in zip(distances, rows, strict=True))[:k]
                for rows, distances in found
            ]
        except KeyError as error:
            raise self._disagreement(store, state, f"there is no item in row {error}") from error
        counts = [len(hits) for hits in best]
        codes = np.frombuffer(store.joined([code for hits in best for *_, code in hits]), np.uint8)
        codes = codes.reshape(-1, self.bits // 8)
        distances = np.array([hit[0] for hits in best for hit in hits], np.int64)
        asked = np.repeat(queries.view(np.uint8)[:, : self.bits // 8], counts, axis=0)
        wrong = np.flatnonzero(np.bitwise_count(asked ^ codes).sum(axis=1, dtype=np.int64) != distances)
        if len(wrong):
            name = [hit[1] for hits in best for hit in hits][wrong[0]]
            raise self._disagreement(store, state, f"the code of {name!r} is not the one that was indexed")
        answers, end = [], 0
        for hits, looked in zip(best, looked_at.tolist(), strict=True):
            start, end = end, end + len(hits)
            entries = store.metadata([entry for _, _, entry, _ in hits])
            names = [name for _, name, _, _ in hits]
            answers.append(Hits(names, distances[start:end], entries, codes[start:end], looked))
        return answers

    def _disagreement(self, store: Store, state: Snapshot, what: str) -> DataError:
        """The store differs from the code file: which of them is damaged? Damaged where it is the latter."""
        if state.base.mapped is not None:
            state.base.mapped.check_again()
        return damaged(store.path, what)

    def _current(self, store: Store, mark: Mark, last: bool) -> Snapshot | None:
        """The state of the store's transaction, which stands at `mark`: the newest one known, caught up; or one anew
        from the code file. None where another thread has gone on: this transaction began too early."""
        with self._lock:
            state = self._snapshot
            if state is not None and self._changed(state):
                state = None
            if state is not None and state.mark == mark:
                return state
            ahead = state is not None and (state.mark.row > mark.row or state.mark.removal > mark.removal)
            if ahead and not last:
                return None
            if state is None or ahead or state.mark.removal < store.log_start():
                base = None if compaction.named(store) == self._unusable else compaction.code_file(store)
                state = snapshot.of_file(base or codefile.empty(-(-self.bits // 64)))
                if state.mark.row > mark.row or state.mark.removal > mark.removal:
                    raise damaged(store.path, "its code file is ahead of it")
            self._snapshot = state.caught_up(store, mark)
            return self._snapshot

    def _changed(self, state: Snapshot) -> bool:
        """Whether somebody else has written to the code file. It is asked now and then only: a call of the system makes
        the rest of a search a tenth slower."""
        now = time.monotonic()
        if state.base.mapped is None or now < self._look_again:
            return False
        self._look_again = now + LOOK_AGAIN
        return state.base.mapped.changed()

    def _is_due(self, mark: Mark) -> bool:
        """Whether too much may lie outside the code file, as far as the newest known state tells."""
        state = self._snapshot
        return time.monotonic() >= self._not_before and (state is None or compaction.lags(state.base, mark))

    def _lags(self, store: Store) -> bool:
        """Whether too much does lie outside the code file."""
        try:
            return compaction.lags(compaction.code_file(store), store.mark())
        except Damaged as damage:
            return damage.path == self._unusable  # any other is replaced when it is read

    def _compact(self, store: Store) -> None:
        """Make the code file anew, unless the one there is not as far behind as the known state."""
        try:
            if self._lags(store):
                compaction.compact(store, self.threads, partial(self._lags, store))
        except KenthashError as error:  # such as a reader that may not write: then the rest is held in memory
            logger.info("the code file was not made anew: %s", error)
            self._not_before = time.monotonic() + PAUSE
            return
        with self._lock:  # made by this thread or by another, it is there to begin from
            self._snapshot = None

    def compact(self, store: Store) -> None:
        compaction.compact(store, self.threads)
        with self._lock:
            self._snapshot = None

    def _replace(self, store: Store, damage: Damaged, give_up: bool) -> None:
        """Make a damaged code file anew. Where that cannot be done, all codes are held in memory."""
        try:
            if give_up:
                raise KenthashError("it is damaged again and again")
            compaction.replace_damaged(store, damage, self.threads)
        except KenthashError as error:
            logger.warning("%s: searching without it: %s", damage, error)
            self._not_before = time.monotonic() + PAUSE
            self._unusable = damage.path
        with self._lock:
            self._snapshot = None


def _rows(state: Snapshot, base: Keys, fresh: Keys, radius: int) -> tuple[list[int], list[int]]:
    """The rows and distances of one query's finished heaps."""
    rows, distances = state.base.found(base, radius)
    if len(state.fresh.rows):
        slots, near = scan.found(fresh, radius)
        rows += state.fresh.rows[slots].tolist()
        distances += near.tolist()
    return rows, distances


def _matching(hits: Hits, filter: Filter, k: int) -> Hits:
    kept = [i for i, entry in enumerate(hits.metadata) if matches(filter, entry)][:k]
    assert hits.codes is not None
    entries = [hits.metadata[i] for i in kept]
    return Hits([hits.ids[i] for i in kept], hits.distances[kept], entries, hits.codes[kept], hits.looked_at)


def _no_hits(bits: int) -> Hits:
    return Hits([], np.empty(0, np.int64), [], np.empty((0, bits // 8), np.uint8), 0, [])


def _by_item(hits: Hits, k: int) -> Hits:
    """Hits of texts as those of the first k items among them."""
    first: dict[str, int] = {}  # the place of each item's nearest text
    for place, name in enumerate(hits.ids):
        first.setdefault(name.partition(SEPARATOR)[0], place)
    ids, places = list(first)[:k], list(first.values())[:k]
    assert hits.codes is not None
    entries = [hits.metadata[place] for place in places]
    numbers = [int(hits.ids[place].partition(SEPARATOR)[2]) for place in places]
    texts = [texts_of(entry)[number] for entry, number in zip(entries, numbers, strict=True)]
    return Hits(ids, hits.distances[places], entries, hits.codes[places], hits.looked_at, texts)
