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
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np
from PIL import Image
from starlette.requests import Request

from kenthash.errors import KenthashError
from kenthash.model.hasher import Hasher
from kenthash.model.pretrained import find_model, pretrained_folders
from kenthash.search import Index, Stats
from kenthash.search.duplicates import find_duplicates
from kenthash.search.folders.roots import Roots
from kenthash.search.local import scan
from kenthash.search.models import digest, model_for, pictures_warning
from kenthash.search.servers.addresses import without_password
from kenthash.service import logs
from kenthash.service.encoding import QueryEncoder
from kenthash.service.errors import Overloaded
from kenthash.service.metrics import Metrics
from kenthash.service.pictures import Decoders, Thumbnails
from kenthash.service.schemas import MAX_FACETS, MAX_LABELS
from kenthash.service.settings import ServiceSettings

T = TypeVar("T")


class OpenIndex:
    """An open index and the model of its codes. Requests use it within `in_use`; it is closed after `retire`, as soon
    as no request uses it."""

    def __init__(self, settings: ServiceSettings, metrics: Metrics, decoders: Decoders) -> None:
        with ExitStack() as undo:  # if anything fails, nothing stays open
            self.index = undo.enter_context(Index.open(settings.index))
            model = settings.model and find_model(settings.model)
            self.folder = model_for(self.index, model, pretrained_folders().values())
            self.digest = digest(self.folder)
            _log_loading(settings, self.folder)
            hasher = load_hasher(self.folder, self.digest, settings.device, self.index.code_bits)
            self.config = hasher.config
            self.encoder = QueryEncoder(hasher, settings, metrics, decoders)
            undo.callback(self.encoder.close)
            first_searches(self.index, hasher.bits)
            self.labels = BackgroundResult("labels", partial(self.index.label_counts, MAX_LABELS))
            self.photos = BackgroundResult("photo counts", partial(self.index.photo_counts, MAX_FACETS))
            self.duplicates = BackgroundResult("duplicates", partial(find_duplicates, self.index))
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
        self.roots = Roots(self.index)
        self.warning = pictures_warning(self.index)
        self.has_texts, self.keeps_texts = self.index.has_texts(), self.index.keeps_texts()
        self._metrics.items.set(self.stats.items)
        for result in (self.labels, self.photos, self.duplicates):
            result.items_changed()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        with self._lock:
            self._users += 1

    def release(self) -> None:
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


def _log_loading(settings: ServiceSettings, model: Path) -> None:
    """What a start waits for: a model takes seconds, on a slow or busy machine many."""
    logs.info("loading", index=without_password(settings.index), model=str(model))


@lru_cache(maxsize=1)
def load_hasher(folder: Path, digest: str, device: str, bits: int) -> Hasher:
    """A model whose first queries, which are slow, have been made. The last one is kept: a reload of the index alone
    does not load it again, and workers share that of the process which they were forked from."""
    hasher = Hasher.load(folder, device, bits)
    if hasher.config.encoder:  # words and pictures, not only vectors from elsewhere
        hasher.query_texts(["a picture"])
        hasher.query_pictures(Image.new("RGB", (64, 64)))
    return hasher


def first_searches(index: Index, bits: int) -> None:
    """May compile kernels: no user should wait for them."""
    scan.use_compiled()
    for query in np.zeros((1, bits // 8), np.uint8), np.ones((1, bits), np.float32):
        index.search(query, 1)


def preload(settings: ServiceSettings) -> int:
    """Load what workers are to share, and leave nothing open; the number of items."""
    with Index.open(settings.index) as index:
        folder = model_for(index, settings.model and find_model(settings.model), pretrained_folders().values())
        _log_loading(settings, folder)
        hasher = load_hasher(folder, digest(folder), settings.device, index.code_bits)
        first_searches(index, hasher.bits)
        return index.stats().items


class BackgroundResult(Generic[T]):
    """What is computed from all items, such as the number of each label: on request, if items have changed since.

    On millions of items it takes seconds, on a server minutes. So it is computed in a thread of its own, for whose end
    nothing waits; until then requests get the last result. After it there is a pause of several times its length, so
    that an index that always changes is not always being read.
    """

    WAIT = 2.0  # seconds that a request waits for it
    PAUSE = 10.0  # times the length of a computation

    def __init__(self, name: str, compute: Callable[[], T]) -> None:
        self._name, self._compute = name, compute
        self._result: T | None = None
        self._outdated, self._not_before = True, 0.0
        self._running: Future[None] | None = None

    def items_changed(self) -> None:
        self._outdated = True

    async def get(self) -> T | None:
        """The last result; None until there is one."""
        running = self._running
        if running is None and self._outdated and time.monotonic() >= self._not_before:
            running = self._running = Future()
            threading.Thread(target=self._run, args=(running,), name=self._name, daemon=True).start()
        if running is not None:
            await asyncio.wait([asyncio.wrap_future(running)], timeout=self.WAIT)
        return self._result

    def _run(self, running: Future[None]) -> None:
        start = time.monotonic()
        self._outdated = False  # before the computation: a change during it may not be seen
        try:
            self._result = self._compute()
        except Exception as error:  # such as a server that is down, or an index that a reload has closed
            self._outdated = True
            logs.warning(f"{self._name} not computed", error=str(error), expected=isinstance(error, KenthashError))
        self._not_before = time.monotonic() + self.PAUSE * (time.monotonic() - start)
        self._running = None
        running.set_result(None)


class ServedIndex:
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
        with self._lock:  # or a reload could close it between the two lines
            current = self._current
            current.acquire()
        try:
            yield current
        finally:
            current.release()

    def reload(self) -> None:
        """Whatever fails, fails before the change: then the old index stays."""
        new = self._open_index()
        with self._lock:
            old, self._current = self._current, new
        old.retire()

    def close(self) -> None:
        self._current.retire()


class SearchThreads:
    """The threads that search, which would hold up the event loop, with a limited number of jobs."""

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
        future.add_done_callback(self._job_ended)
        return await asyncio.wrap_future(future)

    def _job_ended(self, future: Future[Any]) -> None:
        with self._lock:
            self._jobs -= 1

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Service:
    settings: ServiceSettings
    metrics: Metrics
    searchers: SearchThreads
    upload_decoders: Decoders  # separate from the searchers: uploads must not delay searches
    thumbnail_decoders: Decoders  # of the index's own pictures: uploads must not delay these either
    thumbnails: Thumbnails
    served: ServedIndex

    def close(self) -> None:
        self.upload_decoders.close()
        self.thumbnail_decoders.close()
        self.served.close()
        self.searchers.close()


def make_service(settings: ServiceSettings) -> Service:
    metrics = Metrics(settings.metrics)
    max_waiting = 2 * settings.max_in_flight
    in_advance = settings.workers == 1  # they take more memory than a worker itself adds
    uploads = Decoders(settings.threads, max_waiting, settings.upload_seconds, in_advance)
    thumbnails = Decoders(settings.threads, max_waiting, settings.thumbnail_seconds, in_advance)
    served = ServedIndex(lambda: OpenIndex(settings, metrics, uploads))
    searchers = SearchThreads("search", settings.threads, max_waiting)
    return Service(settings, metrics, searchers, uploads, thumbnails, Thumbnails(settings.thumbnail_bytes), served)


def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)
