"""What the routes share: the open index with its model, which a reload replaces, and threads, caches and metrics.

A reload opens the new index beside the old one, which is closed when the last request that uses it has ended.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from starlette.requests import Request

from kenthash.errors import KenthashError, UsageError
from kenthash.model.hasher import Hasher
from kenthash.search import Index, Stats, scan
from kenthash.search.models import digest, model_for, pictures_warning
from kenthash.service import logs
from kenthash.service.encoding import QueryEncoder
from kenthash.service.errors import Overloaded
from kenthash.service.metrics import Metrics
from kenthash.service.pictures import Decoders, Thumbnails
from kenthash.service.schemas import MAX_LABELS
from kenthash.service.settings import Settings

T = TypeVar("T")


class OpenIndex:
    """An open index and the model of its codes. Requests use it within `in_use`; it is closed after `retire`, as soon
    as no request uses it."""

    def __init__(self, settings: Settings, metrics: Metrics, decoders: Decoders) -> None:
        with ExitStack() as undo:  # if anything fails, nothing stays open
            self.index = undo.enter_context(Index.open(settings.index))
            self.folder = model_for(self.index, settings.model)
            self.digest = digest(self.folder)
            hasher = Hasher.load(self.folder, settings.device)
            if hasher.bits != self.index.bits:
                raise UsageError(f"{self.folder}: makes {hasher.bits} bits, the index holds {self.index.bits}")
            self.config = hasher.config
            self.encoder = QueryEncoder(hasher, settings, metrics, decoders)
            undo.callback(self.encoder.close)
            self.encoder.warm_up()
            scan.use_compiled()
            self.index.search(np.zeros((1, hasher.bits // 8), np.uint8), 1)  # may compile kernels
            self.labels = LabelCounter(self.index)
            self._metrics = metrics
            self.refresh()
            undo.pop_all()
        self._lock = threading.Lock()
        self._users, self._retired = 0, False
        if self.warning is not None:
            logs.warning("old codes", error=self.warning)

    def refresh(self) -> None:
        """After a change of the items: update what answers say about all of them."""
        self.stats: Stats = self.index.stats()
        self.warning = pictures_warning(self.index)
        self.has_texts, self.keeps_texts = self.index.has_texts(), self.index.keeps_texts()
        self._metrics.items.set(self.stats.items)
        self.labels.items_changed()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                last = self._retired and self._users == 0
            if last:
                threading.Thread(target=self._close, name="closing").start()  # waits for threads: not in the event loop

    def retire(self) -> None:
        with self._lock:
            self._retired = True
            idle = self._users == 0
        if idle:
            self._close()

    def _close(self) -> None:
        self.encoder.close()
        self.index.close()

    def model_info(self) -> dict[str, object]:
        config = self.config
        return {**config.about, "bits": config.bits, "digest": self.digest, "encoder_trained": config.encoder_trained}


class LabelCounter:
    """The most frequent labels: counted by the engine on request, if items have changed since the last count.

    On millions of items a count takes seconds, on a server minutes. So it runs in a thread of its own, for whose end
    nothing waits; until then requests get the last counts. After a count there is a pause of several times its length,
    so that an index that always changes is not always being counted.
    """

    WAIT = 2.0  # seconds that a request waits for a count
    PAUSE = 10.0  # times the length of a count

    def __init__(self, index: Index) -> None:
        self._index = index
        self._counts: list[tuple[str, int]] | None = None
        self._outdated, self._not_before = True, 0.0
        self._running: Future[None] | None = None

    def items_changed(self) -> None:
        self._outdated = True

    async def most_frequent(self, limit: int) -> tuple[list[tuple[str, int]], bool]:
        """Labels with their numbers of items; and whether they have been counted yet."""
        running = self._running
        if running is None and self._outdated and time.monotonic() >= self._not_before:
            running = self._running = Future()
            threading.Thread(target=self._count, args=(running,), name="labels", daemon=True).start()
        if running is not None:
            await asyncio.wait([asyncio.wrap_future(running)], timeout=self.WAIT)
        return (self._counts or [])[:limit], self._counts is not None

    def _count(self, running: Future[None]) -> None:
        start = time.monotonic()
        self._outdated = False  # before the count: a change during it may not be counted
        try:
            self._counts = self._index.label_counts(MAX_LABELS)
        except Exception as error:  # such as a server that is down, or an index that a reload has closed
            self._outdated = True
            logs.warning("labels not counted", error=str(error), expected=isinstance(error, KenthashError))
        self._not_before = time.monotonic() + self.PAUSE * (time.monotonic() - start)
        self._running = None
        running.set_result(None)


class State:
    """The index that is served now."""

    def __init__(self, open_index: Callable[[], OpenIndex]) -> None:
        self._open_index, self._lock = open_index, threading.Lock()
        self._current = open_index()
        self.draining = False

    @property
    def current(self) -> OpenIndex:
        return self._current

    @contextmanager
    def use(self) -> Iterator[OpenIndex]:
        with ExitStack() as stack:
            with self._lock:  # or a reload could close it between the two lines
                current = self._current
                stack.enter_context(current.in_use())
            yield current

    def reload(self) -> None:
        """Whatever fails, fails before the change: then the old index stays."""
        new = self._open_index()
        with self._lock:
            old, self._current = self._current, new
        old.retire()

    def close(self) -> None:
        self._current.retire()


class Workers:
    """A few threads for work that would hold up the event loop, with a limited number of jobs."""

    def __init__(self, name: str, threads: int, max_jobs: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._max_jobs, self._jobs = max_jobs, 0
        self._lock = threading.Lock()

    async def run(self, job: Callable[..., T], *arguments: Any) -> T:
        """The result of a job; Overloaded at once where too many are waiting.

        A request that ends early (its time is up, its client gone) takes its job out of the queue; one that has begun
        counts until it ends.
        """
        with self._lock:
            if self._jobs >= self._max_jobs:
                raise Overloaded
            future = self._pool.submit(job, *arguments)
            self._jobs += 1
        future.add_done_callback(self._done)
        return await asyncio.wrap_future(future)

    def _done(self, future: Future[Any]) -> None:
        with self._lock:
            self._jobs -= 1

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Service:
    settings: Settings
    metrics: Metrics
    searchers: Workers
    upload_decoders: Decoders  # separate from the searchers: uploads must not delay searches
    thumbnail_decoders: Decoders  # of the index's own pictures: uploads must not delay these either
    thumbnails: Thumbnails
    state: State

    def close(self) -> None:
        self.upload_decoders.close()
        self.thumbnail_decoders.close()
        self.state.close()
        self.searchers.close()


def make_service(settings: Settings) -> Service:
    metrics = Metrics()
    max_waiting = 2 * settings.max_in_flight
    uploads = Decoders(settings.threads, max_waiting, settings.upload_seconds)
    thumbnails = Decoders(settings.threads, max_waiting, settings.thumbnail_seconds)
    state = State(lambda: OpenIndex(settings, metrics, uploads))
    searchers = Workers("search", settings.threads, max_waiting)
    return Service(settings, metrics, searchers, uploads, thumbnails, Thumbnails(settings.thumbnail_bytes), state)


def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)
