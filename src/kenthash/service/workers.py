"""Threads for what would hold up the event loop: few of them, with a bounded number of jobs waiting."""

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kenthash.data.decoding import DecoderPool
from kenthash.data.pictures import Pixels, Square
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


class Decoders:
    """Decodes pictures for requests, in processes that are ended when one takes too long.

    The pictures that wait take their turn by the work that their headers announce, the least first: whoever sends
    pictures that take long holds up each other, not those who send photos. Called in the event loop only.
    """

    def __init__(self, threads: int, most: int, seconds: float) -> None:
        """`seconds` is the processor time that a picture may take; it is given up a second later all the same. There is
        one worker more than threads, to go on at once when another has been ended."""
        self.pool = DecoderPool(seconds, seconds + 1)
        self.pool.start(threads + 1)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pictures")
        self._free, self._most = threads, most
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    async def square(self, content: bytes, work: int, square: Square, max_pixels: int) -> Pixels:
        return await self._run(work, partial(self.pool.square, content, square, max_pixels))

    async def thumbnail(self, path: Path, side: int) -> bytes:
        """In order: they are the index's own pictures, decoded once before."""
        return await self._run(0, partial(self.pool.thumbnail, path, side))

    def close(self) -> None:
        self.pool.close()
        self._threads.shutdown(cancel_futures=True)

    async def _run(self, work: int, job: Callable[[], T]) -> T:
        """A request that ends early leaves the queue; a picture that is being decoded keeps its turn until it ends."""
        if len(self._waiting) >= self._most:
            raise Overloaded
        await self._turn(work)
        loop = asyncio.get_running_loop()
        future = self._threads.submit(job)
        future.add_done_callback(partial(self._ended, loop))
        return await asyncio.wrap_future(future)

    def _ended(self, loop: asyncio.AbstractEventLoop, future: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(self._next)

    async def _turn(self, work: int) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (work, next(self._order), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it came in the same moment
                self._next()
            raise

    def _next(self) -> None:
        """Hand a turn that is over to the next that waits for it."""
        while self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
