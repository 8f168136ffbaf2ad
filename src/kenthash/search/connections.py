"""The SQLite connections of one open index: taken for a call, then given back for the next one.

There are as many as calls at a time, whatever the number of threads that make them, and few are kept between calls:
each has two file descriptors and a page cache. Only SQLite closes them: closing a file drops the locks that the
process has on it through its other connections, so SQLite keeps the descriptor for the next connection, until the last
one goes.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.search.schema import errors
from kenthash.search.store import Store

KEPT = 8  # connections between calls


class Connections:
    def __init__(self, first: Store, at_end: Callable[[], None]) -> None:
        """`at_end` is called once: after `close`, when no call uses a connection any more."""
        self._path, self._identity, self._at_end = first.path, first.identity, at_end
        self._lock = threading.Lock()
        self._idle = [first]  # the last one given back is the first one taken: its cache is the most recent
        self._in_use = 0
        self._closed = False

    @contextmanager
    def one(self) -> Iterator[Store]:
        """A connection that nobody else uses meanwhile."""
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
                store = self._another()
            with errors(self._path):
                yield store
            if store.outdated():
                raise KenthashError(f"{self._path}: was changed while it was read: ask again")
        finally:
            self._give_back(store)

    def close(self) -> None:
        """No call begins after this. Those under way end as they would, and the last of them closes its connection."""
        with self._lock:
            ends_now = not self._closed and self._in_use == 0
            self._closed = True
            idle, self._idle = self._idle, []
        for store in idle:
            store.close()
        if ends_now:
            self._at_end()

    def _give_back(self, store: Store | None) -> None:
        reusable = store is not None and not store.connection.in_transaction
        with self._lock:
            self._in_use -= 1
            ends_now = self._closed and self._in_use == 0
            if store is not None and reusable and not self._closed and len(self._idle) < KEPT:
                self._idle.append(store)
                return
        if store is not None:
            store.close()
        if ends_now:
            self._at_end()

    def _another(self) -> Store:
        store = Store.open(self._path)
        if store.identity != self._identity:
            store.close()
            raise DataError(f"{self._path}: another index has taken the place of the one opened: open it again")
        return store
