"""The local engine: an SQLite file as the truth, a code file for speed, exact search on all cores of one machine.

Threads may search at once, each call with a connection of its own; the kernels release the interpreter lock. Several
processes may open one index: writers take turns, and every search sees one state of the store, from its codes to its
metadata.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.progress import cores
from kenthash.search.engine import MAX_TEXTS, Hits, Item, Metadata, Stats, texts_of
from kenthash.search.filters import Filter
from kenthash.search.local import codefile, fulltext
from kenthash.search.local.checksums import DamagedCodeFile
from kenthash.search.local.schema import damaged, errors
from kenthash.search.local.searcher import Searcher
from kenthash.search.local.sqlite import sqlite3
from kenthash.search.local.store import FORMS, REPLACED, SEPARATOR, Store, TextStore
from kenthash.search.photo_counts import PhotoGroup
from kenthash.search.queries import Queries

IDLE = 8  # connections kept between calls


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
