"""The local engine: an SQLite file as the truth, a code file for speed, exact search on all cores of one machine.

Threads may search at once, each call with a connection of its own; the kernels release the interpreter lock. Several
processes may open one index: writers take turns, and every search sees one state of the store, from its codes to its
metadata.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.progress import cores
from kenthash.search.engine import MAX_TEXTS, Hits, Item, Metadata, Stats, texts_of
from kenthash.search.filters import Filter, matches
from kenthash.search.local import codefile, fulltext
from kenthash.search.local.checksums import DamagedCodeFile
from kenthash.search.local.schema import damaged, errors
from kenthash.search.local.snapshot import Bitmaps, Snapshot, snapshot_of
from kenthash.search.local.sqlite import sqlite3
from kenthash.search.local.store import FORMS, REPLACED, SEPARATOR, Mark, Store, TextStore
from kenthash.search.photo_counts import PhotoGroup
from kenthash.search.queries import Queries

logger = logging.getLogger(__name__)

IDLE = 8  # connections kept between calls
ATTEMPTS = 5  # at a transaction that is not older than the snapshot
NEAREST_FIRST = 256  # nearest items that a filter is tested on before it is tested on all items
FEW_QUERIES = 16  # for which that is worth it
REBUILD_PAUSE = 60.0  # seconds until a code file that could not be written is tried again: it means reading all items
PATIENCE = 4  # how many times as far as for a rebuild in the background a code file may be behind, until a search waits
FILE_CHECK_SECONDS = 1.0  # how often the code file is looked at for changes by others


class LocalEngine:
    """`form` says what a code file holds besides codes and rows: tables with copies of the codes ("fast", in all 56
    bytes per item at 64 bits), tables without ("compact", 24), or none ("scan", 12). Beyond 2^24 items a slot takes one
    byte more in each of the four tables: 60 and 28. All forms give the same answers."""

    def __init__(self, store: Store) -> None:
        self.bits, self.code_bits, self.path = store.bits, store.code_bits, store.path
        self.where = str(store.path)
        self.threads = cores()
        self._pool = ThreadPoolExecutor(self.threads)
        self.connections = Connections(store, on_end=partial(self._pool.shutdown, wait=False))
        self._items = Searcher(self._pool, self.threads, self.connections.connection)
        self._texts = Searcher(self._pool, self.threads, self._text_connection)

    @classmethod
    def create(cls, target: str | Path, bits: int, code_bits: int, form: str = "fast") -> "LocalEngine":
        if form not in FORMS:
            raise UsageError(f"form {form!r}: must be one of {', '.join(FORMS)}")
        return cls(Store.create(Path(target), bits, code_bits, form))

    @classmethod
    def open(cls, target: str | Path) -> "LocalEngine":
        return cls(Store.open(Path(target)))

    @contextmanager
    def _text_connection(self) -> Iterator[Store]:
        with self.connections.connection() as store:
            yield TextStore(store)

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        with self.connections.connection() as store:
            store.add(ids, codes, metadata)

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        with self.connections.connection() as store:
            store.upsert(ids, codes, metadata)

    def remove(self, ids: Sequence[str]) -> int:
        with self.connections.connection() as store:
            return store.remove(ids)

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        with self.connections.connection() as store:
            return store.get(ids)

    def list_ids(self, after: str, limit: int) -> list[str]:
        with self.connections.connection() as store:
            return store.list_ids(after, limit)

    def put_texts(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        with self.connections.connection() as store:
            TextStore(store).put(ids, metadata, codes)

    def count_texts(self, ids: Sequence[str]) -> list[int]:
        with self.connections.connection() as store:
            texts = TextStore(store)
            return texts.counts(ids) if texts.exists() else [0] * len(ids)

    def update_words(self, most: int | None = None) -> None:
        with self.connections.connection() as store:
            fulltext.update(store, most)

    def match_words(self, text: str, limit: int) -> list[str]:
        with self.connections.connection() as store:
            return fulltext.matching(store, text, limit)

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        with self.connections.connection() as store:
            return store.label_counts(limit)

    def photo_groups(self) -> list[PhotoGroup]:
        with self.connections.connection() as store:
            return store.photo_groups()

    def notes(self) -> dict[str, str]:
        with self.connections.connection() as store:
            return store.notes()

    def note(self, key: str, value: str) -> None:
        with self.connections.connection() as store:
            store.set_note(key, value)

    def search(self, queries: Queries, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        with self.connections.connection() as store:
            return self._items.search(store, queries, k, radius, filter)

    def search_texts(self, queries: Queries, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        """The nearest MAX_TEXTS * k texts belong to at least k items. Often 2 * k texts do, which are tried first."""
        answers = [_no_hits(self.code_bits)] * len(queries)
        with self.connections.connection() as store:
            texts = TextStore(store)
            for count in (2 * k, MAX_TEXTS * k) if texts.exists() else ():
                text_hits = self._texts.search(texts, queries, count, radius, filter)
                try:
                    answers = [_by_item(hits, k) for hits in text_hits]
                except (IndexError, ValueError) as error:  # the latter where an id holds the separator
                    raise damaged(self.path, "there are codes of texts that no item has") from error
                if all(len(items) == k or len(hits) < count for items, hits in zip(answers, text_hits, strict=True)):
                    break
        return answers

    def compact(self) -> None:
        with self.connections.connection() as store:
            self._items.compact(store)
            texts = TextStore(store)
            if texts.exists():
                self._texts.compact(texts)

    def stats(self) -> Stats:
        files = [self.path, self.path.with_name(self.path.name + "-wal")]
        with self.connections.connection() as store:
            try:
                base = codefile.current_code_file(store)
            except DamagedCodeFile:
                base = None
            items, form = store.count(), store.form
        size = sum(file.stat().st_size for file in files if file.exists()) + (base.bytes if base else 0)
        return Stats(
            "local",
            items,
            self.code_bits,
            size,
            {
                "form": form,
                "SQLite": sqlite3.sqlite_version,
                "in the code file": len(base.codes) if base else 0,
                "code file bytes": base.bytes if base else 0,
                "tables": len(base.tables.cuts) if base and base.tables else 0,
            },
        )

    def close(self) -> None:
        self.connections.close()


class Searcher:
    """The search of the codes of one store, of items or of texts, in its newest state.

    It keeps the newest `Snapshot` of the store, has the code file rebuilt where it is damaged or too far behind, and
    takes ids and metadata from the store, in the transaction in which the snapshot has found the rows. Hits are ordered
    by distance and id here: a snapshot does not know all ids.

    A code file that falls behind while searches go on is rebuilt by a thread of its own, so that no search waits for
    it. Only the first search of all, and one after very many changes at once, rebuild it before they answer.
    """

    def __init__(
        self, pool: ThreadPoolExecutor, threads: int, connection: Callable[[], AbstractContextManager[Store]]
    ) -> None:
        """`connection` gives a connection to the store, for the thread that rebuilds the code file."""
        self._pool, self.threads, self._connection = pool, threads, connection
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._unusable: Path | None = None  # a damaged code file that could not be rebuilt
        self._next_rebuild = 0.0  # by the monotonic clock: not before this is the code file rebuilt
        self._next_file_check = 0.0  # by the same clock: when to test whether others have changed the code file
        self._last_filter: tuple[str, Snapshot, Bitmaps] | None = None
        self._rebuilding: threading.Thread | None = None

    def search(self, store: Store, queries: Queries, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        if not len(queries):
            return []
        most = store.code_bits if radius is None else radius
        for attempt in count():
            damage = None
            with store.reading():
                mark = store.mark()
                rebuild = attempt == 0 and self._may_need_rebuild(mark) and not self._rebuild_in_background(mark)
                try:
                    state = None if rebuild else self._current(store, mark, last_attempt=attempt >= ATTEMPTS)
                    if state is not None:
                        if filter is None:
                            return self._nearest(store, state, queries, k, most, None)
                        return self._filtered_search(store, state, queries, k, most, filter)
                except DamagedCodeFile as error:
                    damage = error
            if rebuild:
                self._rebuild_if_needed(store)
            elif damage is not None:
                self._rebuild_damaged(store, damage, give_up=attempt >= ATTEMPTS)
        raise AssertionError("there is always another attempt")

    def _filtered_search(
        self, store: Store, state: Snapshot, queries: Queries, k: int, radius: int, filter: Filter
    ) -> list[Hits]:
        """If the filter is true of k of the nearest items, those are the answer; if not, it is tested on all items."""
        if len(queries) > FEW_QUERIES:
            return self._nearest(store, state, queries, k, radius, self._allowed(store, state, filter))
        first = max(NEAREST_FIRST, 4 * k)
        near = self._nearest(store, state, queries, first, radius, None)
        answers = [_matching(hits, filter, k) for hits in near]
        short = [q for q in range(len(near)) if len(answers[q]) < k and len(near[q]) == first]
        if short:
            filtered = self._nearest(
                store, state, queries.select(short), k, radius, self._allowed(store, state, filter)
            )
            for q, hits in zip(short, filtered, strict=True):
                answers[q] = replace(hits, looked_at=(hits.looked_at or 0) + (near[q].looked_at or 0))
        return answers

    def _allowed(self, store: Store, state: Snapshot, filter: Filter) -> Bitmaps:
        """The slots for which a filter is true; those of the last filter are cached."""
        text = repr(filter)  # filters themselves do not tell `a = 1` from `a = true`, since to Python 1 equals True
        last = self._last_filter
        if last is None or last[0] != text or last[1] is not state:
            last = (text, state, state.allowed(store.rows_matching(filter)))
            self._last_filter = last
        return last[2]

    def _nearest(
        self, store: Store, state: Snapshot, queries: Queries, k: int, radius: int, allowed: Bitmaps | None
    ) -> list[Hits]:
        """The nearest by distance and id, with metadata from the store."""
        looked_at = np.zeros(len(queries), np.int64)
        near = state.nearest(queries, k, radius, allowed, self._pool, self.threads, looked_at)
        items = store.items_of(sorted({row for best in near for row in best.rows}))
        answers = []
        for q, (best, looked) in enumerate(zip(near, looked_at.tolist(), strict=True)):
            try:
                pairs = zip(best.distances, best.rows, strict=True)
                hits = sorted((distance, *items[row]) for distance, row in pairs)[:k]
            except KeyError as error:
                raise self._disagreement(store, state, f"there is no item in row {error}") from error
            names = [name for _, name, _, _ in hits]
            distances = np.array([distance for distance, _, _, _ in hits], np.int64)
            packed = np.frombuffer(b"".join(code for *_, code in hits), np.uint8)
            codes = packed.reshape(-1, store.code_bits // 8)
            wrong = np.flatnonzero(queries.distances(q, codes) != distances)
            if len(wrong):
                what = f"the code of {names[wrong[0]]!r} is not the one that was indexed"
                raise self._disagreement(store, state, what)
            entries = store.parse_metadata([entry for _, _, entry, _ in hits])
            answers.append(Hits(names, distances, entries, codes, looked, proven=best.proven))
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
                state = snapshot_of(base or codefile.empty_code_file(*store.words), store.bits)
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

    def _rebuild_in_background(self, mark: Mark) -> bool:
        """Have the code file rebuilt while searches go on with the snapshot; whether that is possible."""
        state = self._snapshot
        if state is None or codefile.is_far_behind(state.base, mark, PATIENCE):
            return False
        with self._lock:
            if self._rebuilding is None or not self._rebuilding.is_alive():
                self._rebuilding = threading.Thread(target=self._rebuild, name="kenthash rebuild")
                self._rebuilding.start()
        return True

    def _rebuild(self) -> None:
        try:
            with self._connection() as store:
                if self._needs_rebuild(store):
                    codefile.compact(store, self.threads, partial(self._needs_rebuild, store))
                with store.reading():
                    base = codefile.current_code_file(store)
                    state = snapshot_of(base or codefile.empty_code_file(*store.words), store.bits)
                    before = self._snapshot
                    state = state.prepared(before).caught_up(store, store.mark())
        except KenthashError as error:  # such as a full disk: then the rest is held in memory
            logger.info("the code file was not rebuilt: %s", error)
            self._next_rebuild = time.monotonic() + REBUILD_PAUSE
            return
        with self._lock:  # a search that has seen a later state by now catches up again
            self._snapshot = state

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


class Connections:
    """The SQLite connections of one open index: each is taken for one call, then given back for the next.

    There are as many as calls at one time, whatever the number of threads that make them, and few are kept between
    calls: each has two file descriptors and a page cache. Only SQLite closes their descriptors: closing a file drops
    the locks that the process has on it through its other connections, so SQLite keeps the descriptor for the next
    connection, until the last one is closed.
    """

    def __init__(self, first: Store, on_end: Callable[[], None]) -> None:
        """`on_end` is called once: after `close`, when no call uses a connection any more."""
        self._path, self._identity, self._on_end = first.path, first.identity, on_end
        self._lock = threading.Lock()
        self._idle = [first]  # the last one given back is the first one taken: its cache is the most recent
        self._in_use = 0
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[Store]:
        """A connection that no other call uses meanwhile."""
        with self._lock:
            if self._closed:
                raise UsageError(f"{self._path}: the index is closed: open it again")
            store = self._idle.pop() if self._idle else None
            self._in_use += 1
        try:
            if store is not None and store.outdated():
                store.close()
                store = None
            if store is None:
                store = self._open_another()
            with errors(self._path):
                yield store
            if store.outdated():
                raise KenthashError(f"{self._path}: was changed while it was read: search again")
        finally:
            self._give_back(store)

    def close(self) -> None:
        """No call begins after this. Those under way finish, and the last of them closes its connection."""
        with self._lock:
            ends_now = not self._closed and self._in_use == 0
            self._closed = True
            idle, self._idle = self._idle, []
        for store in idle:
            store.close()
        if ends_now:
            self._on_end()

    def _give_back(self, store: Store | None) -> None:
        reusable = store is not None and not store.connection.in_transaction
        with self._lock:
            self._in_use -= 1
            ends_now = self._closed and self._in_use == 0
            if store is not None and reusable and not self._closed and len(self._idle) < IDLE:
                self._idle.append(store)
                return
        if store is not None:
            store.close()
        if ends_now:
            self._on_end()

    def _open_another(self) -> Store:
        store = Store.open(self._path)
        if store.identity != self._identity:
            store.close()
            raise DataError(f"{self._path}: {REPLACED}")
        return store


def _no_hits(bits: int) -> Hits:
    return Hits([], np.empty(0, np.int64), [], np.empty((0, bits // 8), np.uint8), 0, [])


def _by_item(hits: Hits, k: int) -> Hits:
    """The hits of a search among texts as hits of the first k items among them."""
    first: dict[str, int] = {}  # the place of each item's nearest text
    for place, name in enumerate(hits.ids):
        first.setdefault(name.partition(SEPARATOR)[0], place)
    ids, places = list(first)[:k], list(first.values())[:k]
    assert hits.codes is not None
    entries = [hits.metadata[place] for place in places]
    numbers = [int(hits.ids[place].partition(SEPARATOR)[2]) for place in places]
    texts = [texts_of(entry)[number] for entry, number in zip(entries, numbers, strict=True)]
    distances, codes = hits.distances[places], hits.codes[places]
    return replace(hits, ids=ids, distances=distances, metadata=entries, codes=codes, texts=texts)


def _matching(hits: Hits, filter: Filter, k: int) -> Hits:
    """The first k hits for which a filter is true."""
    places = [i for i, entry in enumerate(hits.metadata) if matches(filter, entry)][:k]
    assert hits.codes is not None
    entries = [hits.metadata[i] for i in places]
    ids, codes = [hits.ids[i] for i in places], hits.codes[places]
    return replace(hits, ids=ids, distances=hits.distances[places], metadata=entries, codes=codes)
