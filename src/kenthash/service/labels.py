"""The most frequent labels: counted by the engine when somebody asks and items have changed since the last count.

On millions of items a count takes seconds, on a server minutes. So it runs in a thread of its own, whose end nothing
waits for; requests are told the last counts meanwhile. After a count there is a pause of some times its length, so that
an index that always changes is not always counted.
"""

import asyncio
import threading
import time
from concurrent.futures import Future

from kenthash.errors import KenthashError
from kenthash.search import Index
from kenthash.service import logs
from kenthash.service.settings import MAX_LABELS

WAIT = 2.0  # seconds that a request waits for a count
PAUSE = 10.0  # times the length of a count


class Labels:
    def __init__(self, index: Index) -> None:
        self._index = index
        self._counts: list[tuple[str, int]] | None = None
        self._outdated, self._not_before = True, 0.0
        self._count: Future[None] | None = None  # the one under way

    def items_changed(self) -> None:
        self._outdated = True

    async def most_frequent(self, limit: int) -> tuple[list[tuple[str, int]], bool]:
        """Labels with their numbers of items; and whether they have been counted yet."""
        count = self._count
        if count is None and self._outdated and time.monotonic() >= self._not_before:
            count = self._count = Future()
            threading.Thread(target=self._run, args=(count,), name="labels", daemon=True).start()
        if count is not None:
            await asyncio.wait([asyncio.wrap_future(count)], timeout=WAIT)
        return (self._counts or [])[:limit], self._counts is not None

    def _run(self, count: Future[None]) -> None:
        start = time.monotonic()
        self._outdated = False  # before the count: what changes during it may not be in it
        try:
            self._counts = self._index.label_counts(MAX_LABELS)
        except Exception as error:  # such as a server that is down, or an index that a reload has closed
            self._outdated = True
            logs.warning("labels not counted", error=str(error), expected=isinstance(error, KenthashError))
        self._not_before = time.monotonic() + PAUSE * (time.monotonic() - start)
        self._count = None
        count.set_result(None)
