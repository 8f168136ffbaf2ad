"""Queries to real-valued outputs, whose signs are codes: words and pictures, through a cache and the one thread that
encodes for all requests.

Items that wait at the same time are encoded as one batch: those that came while the last batch was encoded, and those
that come within `WAIT`. So a single request is not held up, and many requests share the cost.
"""

import asyncio
import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from kenthash.data.headers import expected_work
from kenthash.data.pictures import BadPicture, Pixels, TooLarge
from kenthash.encoders.stream import picture_vectors
from kenthash.model.hasher import Hasher
from kenthash.progress import cores
from kenthash.service.errors import ApiError, Overloaded
from kenthash.service.metrics import Metrics
from kenthash.service.pictures import Decoders
from kenthash.service.settings import ServiceSettings

CACHED = 20_000  # queries, in about 15 MB for 64 bits: the next page of an answer is not encoded a second time
WAIT = 0.002  # seconds that a batch stays open for others to join
TEXTS_PER_CORE, MAX_PICTURES = 8, 4  # of a batch: no query should wait much longer than its own encoding takes
Output = NDArray[np.float32]  # [bits]


class QueryEncoder:
    """The batcher holds no reference back to it: so a model that a reload has replaced is freed at once. The garbage
    collector, which would find a cycle, does not look at objects from before the server started."""

    def __init__(self, hasher: Hasher, settings: ServiceSettings, metrics: Metrics, decoders: Decoders) -> None:
        self.hasher, self._settings, self._metrics, self._decoders = hasher, settings, metrics, decoders
        self._cache: LRUCache[tuple[str, bytes], Output] = LRUCache(CACHED)  # used in the event loop only
        self.encodes = bool(hasher.config.encoder)  # words and pictures, not only vectors from elsewhere
        self._texts = Kind("text", hasher.query_texts, TEXTS_PER_CORE * cores())
        self._pictures = Kind("image", partial(_encode_pictures, hasher), MAX_PICTURES)
        self._batcher = Batcher(settings.max_queue, partial(_report, metrics))

    @property
    def alive(self) -> bool:
        return self._batcher.alive

    async def text(self, text: str) -> Output:
        self._check_encodes()
        key = ("text", hashlib.sha256(text.encode()).digest())  # so that every entry takes as much memory
        if (output := self._cached(key)) is None:
            output = self._cache[key] = await self._batcher.encode(self._texts, text)
        return output

    async def picture(self, content: bytes) -> Output:
        self._check_encodes()
        digest, work = await asyncio.to_thread(_digest_and_work, content)
        key = ("image", digest)
        if (output := self._cached(key)) is None:
            pixels = await self._decode(content, work)
            output = self._cache[key] = await self._batcher.encode(self._pictures, pixels)
        return output

    def close(self) -> None:
        self._batcher.close()

    def _cached(self, key: tuple[str, bytes]) -> Output | None:
        output = self._cache.get(key)
        if output is not None:
            self._metrics.cached.labels("code").inc()
        return output

    def _check_encodes(self) -> None:
        if not self.encodes:
            detail = "this model was trained on vectors from elsewhere: search by the id of an item instead"
            raise ApiError("no-encoder", detail)

    async def _decode(self, content: bytes, work: int) -> Pixels:
        """An uploaded file to the pixels that the encoder takes."""
        try:
            return await self._decoders.square(content, work, self.hasher.encoder.square(), self._settings.max_pixels)
        except TooLarge as error:
            raise ApiError("too-large", f"a picture of {error.reason}: send a smaller one") from error
        except BadPicture as error:
            raise ApiError("bad-picture", f"{error}: send a JPEG, PNG, WebP, GIF, TIFF or BMP") from error


def _encode_pictures(hasher: Hasher, squares: Sequence[Pixels]) -> NDArray[np.float32]:
    return hasher.image_outputs(picture_vectors(hasher.encoder, squares))


def _report(metrics: Metrics, kind: str, items: int, seconds: float) -> None:
    metrics.batches.labels(kind).observe(items)
    metrics.encode_seconds.labels(kind).inc(seconds)


def _digest_and_work(content: bytes) -> tuple[bytes, int]:
    """The key of a picture in the cache, and how much work it is to decode."""
    return hashlib.sha256(content).digest(), expected_work(content)


@dataclass(frozen=True)
class Kind:
    """How one kind of item is encoded, and the largest batch of it."""

    name: str
    encode: Callable[[Sequence[Any]], NDArray[np.float32]]
    max_batch: int


@dataclass
class _Job:
    kind: Kind
    item: Any
    future: Future[Output] = field(default_factory=Future)


class Batcher:
    def __init__(self, max_queue: int, report: Callable[[str, int, float], None]) -> None:
        """`report` is called for each batch with its kind, its number of items and its seconds."""
        self.max_queue, self._report = max_queue, report
        self._jobs: deque[_Job] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="encoder", daemon=True)
        self._thread.start()

    async def encode(self, kind: Kind, item: Any) -> Output:
        """The output of one item; Overloaded at once where the queue is full."""
        with self._change:
            if len(self._jobs) >= self.max_queue or self._closed:
                raise Overloaded("too many queries to encode at once: try again in a second")
            job = _Job(kind, item)
            self._jobs.append(job)
            self._change.notify()
        return await asyncio.wrap_future(job.future)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Items that requests wait for are still encoded."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            jobs = [job for job in batch if job.future.set_running_or_notify_cancel()]
            if jobs:
                self._encode(jobs)

    def _next_batch(self) -> list[_Job]:
        """All of one kind; empty when closed and done."""
        with self._change:
            while not self._jobs and not self._closed:
                self._change.wait()
            if self._jobs and not self._closed:
                kind, until = self._jobs[0].kind, time.monotonic() + WAIT
                while len(self._jobs) < kind.max_batch and (left := until - time.monotonic()) > 0:
                    self._change.wait(left)
            return _take_batch(self._jobs)

    def _encode(self, jobs: list[_Job]) -> None:
        kind, start = jobs[0].kind, time.perf_counter()
        try:
            outputs = kind.encode([job.item for job in jobs])
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].future.set_exception(error)
            else:  # one item is at fault: the others are encoded without it
                for job in jobs:
                    self._encode([job])
            return
        self._report(kind.name, len(jobs), time.perf_counter() - start)
        for job, output in zip(jobs, outputs, strict=True):
            job.future.set_result(output)


def _take_batch(queue: deque[_Job]) -> list[_Job]:
    """From the front, jobs of the same kind as the first, up to its largest batch; the others keep their order."""
    batch: list[_Job] = []
    other_kinds: list[_Job] = []
    while queue and len(batch) < (batch or [queue[0]])[0].kind.max_batch:
        job = queue.popleft()
        (batch if not batch or job.kind is batch[0].kind else other_kinds).append(job)
    queue.extendleft(reversed(other_kinds))
    return batch
