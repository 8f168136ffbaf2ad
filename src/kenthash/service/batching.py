"""One thread that encodes for all requests: what waits at the same time is encoded at the same time.

A batch is whatever has come while the last one was at work, plus what comes within `WAIT`; so a lone request is not
held up, and a crowd shares its cost.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.service.problems import Overloaded

WAIT = 0.002  # seconds that a batch stays open for others to join
Code = NDArray[np.uint8]


@dataclass(frozen=True)
class Kind:
    """How one kind of item is encoded, and how many are best taken at once."""

    name: str
    encode: Callable[[Sequence[Any]], Codes]
    most: int


@dataclass
class _Job:
    kind: Kind
    item: Any
    future: Future[Code] = field(default_factory=Future)


class Batcher:
    def __init__(self, max_queue: int, report: Callable[[str, int, float], None]) -> None:
        """`report` is told of each batch: its kind, how many, how long."""
        self.max_queue, self._report = max_queue, report
        self._jobs: deque[_Job] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="encoder", daemon=True)
        self._thread.start()

    async def encode(self, kind: Kind, item: Any) -> Code:
        """The code of one item; Overloaded at once where the queue is full."""
        with self._change:
            if len(self._jobs) >= self.max_queue or self._closed:
                raise Overloaded("too much to encode at once: try again in a second")
            job = _Job(kind, item)
            self._jobs.append(job)
            self._change.notify()
        return await asyncio.wrap_future(job.future)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """What requests wait for is still encoded."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next():
            jobs = [job for job in batch if job.future.set_running_or_notify_cancel()]
            if jobs:
                self._encode(jobs)

    def _next(self) -> list[_Job]:
        """The next batch, all of one kind; empty when closed and done."""
        with self._change:
            while not self._jobs and not self._closed:
                self._change.wait()
            if self._jobs and not self._closed:
                kind, until = self._jobs[0].kind, time.monotonic() + WAIT
                while len(self._jobs) < kind.most and (left := until - time.monotonic()) > 0:
                    self._change.wait(left)
            return _take(self._jobs)

    def _encode(self, jobs: list[_Job]) -> None:
        kind, start = jobs[0].kind, time.perf_counter()
        try:
            codes = kind.encode([job.item for job in jobs])
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].future.set_exception(error)
            else:  # one of them is at fault, and the others must not suffer for it
                for job in jobs:
                    self._encode([job])
            return
        self._report(kind.name, len(jobs), time.perf_counter() - start)
        for job, code in zip(jobs, codes, strict=True):
            job.future.set_result(code)


def _take(queue: deque[_Job]) -> list[_Job]:
    """From the front, as many as make a batch, of the kind of the first; the others keep their order."""
    batch: list[_Job] = []
    rest: list[_Job] = []
    while queue and len(batch) < (batch or [queue[0]])[0].kind.most:
        job = queue.popleft()
        (batch if not batch or job.kind is batch[0].kind else rest).append(job)
    queue.extendleft(reversed(rest))
    return batch
