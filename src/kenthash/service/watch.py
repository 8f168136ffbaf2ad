"""A look at the disk every second: new items are counted, and a new index or model is loaded beside the old one.

SIGHUP asks for a reload at once. No request is lost by one: see `state`. One that fails is tried again, less and less
often: its cause may go without a change on the disk, such as a database that was down.
"""

import asyncio
import math
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from kenthash.errors import KenthashError
from kenthash.service import logs
from kenthash.service.service import Service

EVERY = 1.0  # seconds
RETRY = 60.0  # seconds at most until a reload that failed is tried again


@asynccontextmanager
async def watching(service: Service) -> AsyncIterator[None]:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, RuntimeError, ValueError, AttributeError):  # Windows; not the main thread
        loop.add_signal_handler(signal.SIGHUP, asked.set)
    task = asyncio.create_task(_watch(service, asked))
    await asyncio.sleep(0)  # it has its first look before anything can change
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _watch(service: Service, asked: asyncio.Event) -> None:
    target, state = service.settings.index, service.state
    known, content = _whole(target, state.served.folder), _content(target)
    pause, retry_at = EVERY, math.inf
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), EVERY)
        seen, now = _whole(target, state.served.folder), _content(target)
        changed = asked.is_set() or seen != known
        if changed or time.monotonic() >= retry_at:
            asked.clear()
            pause = EVERY if changed else min(2 * pause, RETRY)
            retry_at = math.inf if await _reload(service) else time.monotonic() + pause
            known, content = seen, now
        elif now != content and await _refresh(service):
            content = now


async def _reload(service: Service) -> bool:
    """Whether it could be done."""
    try:
        await asyncio.to_thread(service.state.reload)
    except Exception as error:
        service.metrics.reloads.labels("failed").inc()
        if isinstance(error, KenthashError):  # such as a model that is still being written
            logs.warning("reload failed: the old index and model stay", error=str(error))
        else:
            logs.failure("reload failed: the old index and model stay", error)
        return False
    service.metrics.reloads.labels("done").inc()
    logs.info("reloaded", items=service.state.served.stats.items)
    return True


async def _refresh(service: Service) -> bool:
    """Whether it could be done; if not, the next look tries again."""
    with service.state.use() as served:
        try:
            # By a thread that searches: each one that asks an index keeps a connection with a cache of its own.
            await service.searchers.run(served.refresh)
        except Exception as error:  # which must not end the watch
            logs.warning("the index could not be looked at", error=str(error))
            return False
        return True


def _whole(target: str, model: Path) -> list[tuple[int, ...]]:
    """What tells that the index or the model was replaced: not that items came or went, which needs no reload."""
    marks = [_mark(model / "config.json"), _mark(model / "model.safetensors")]
    return marks if "://" in target else [*marks, _mark(Path(target))[:1]]


def _content(target: str) -> list[tuple[int, ...]]:
    """What tells that a local index has other items."""
    return [] if "://" in target else [_mark(Path(target)), _mark(Path(f"{target}-wal"))]


def _mark(file: Path) -> tuple[int, ...]:
    try:
        about = file.stat()
    except OSError:
        return ()
    return about.st_ino, about.st_mtime_ns, about.st_size
