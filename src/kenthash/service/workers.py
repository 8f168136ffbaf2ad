"""Threads for what would hold up the event loop: few of them, with a bounded number of jobs waiting."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from kenthash.service.problems import Overloaded

T = TypeVar("T")


class Workers:
    def __init__(self, name: str, threads: int, most: int) -> None:
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.most, self.jobs = most, 0
        self._lock = threading.Lock()

    async def run(self, job: Callable[..., T], *arguments: Any) -> T:
        """A job's result; Overloaded at once where too many are waiting.

        A request that ends early (its time is up, its client gone) takes its job out of the queue; one that has begun
        counts until it ends.
        """
        with self._lock:
            if self.jobs >= self.most:
                raise Overloaded
            future = self.pool.submit(job, *arguments)
            self.jobs += 1
        future.add_done_callback(self._done)
        return await asyncio.wrap_future(future)

    def _done(self, future: Future[Any]) -> None:
        with self._lock:
            self.jobs -= 1

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
