"""Checks of the disk, once per second: new items are counted, and a new index or model is loaded beside the old one.

SIGHUP causes a reload at once. No request is lost by a reload: see `state`. A reload that failed is repeated at growing
intervals: its cause may end without a change on the disk, such as a database that was down.
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
from kenthash.service.state import Service

INTERVAL = 1.0  # seconds
MAX_RETRY = 60.0  # seconds until a failed reload is repeated


@asynccontextmanager
async def watching(service: Service) -> AsyncIterator[None]:
    requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, RuntimeError, ValueError, AttributeError):  # Windows; not the main thread
        loop.add_signal_handler(signal.SIGHUP, requested.set)
    task = asyncio.create_task(_watch(service, requested))
    await asyncio.sleep(0)  # the first check is made before anything can change
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _watch(service: Service, requested: asyncio.Event) -> None:
    target, served = service.settings.index, service.served
    known_files, known_items = _files_state(target, served.current.folder), _items_state(target)
    pause, retry_at = INTERVAL, math.inf
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(requested.wait(), INTERVAL)
        files, items = _files_state(target, served.current.folder), _items_state(target)
        changed = requested.is_set() or files != known_files
        if changed or time.monotonic() >= retry_at:
            requested.clear()
            pause = INTERVAL if changed else min(2 * pause, MAX_RETRY)
            retry_at = math.inf if await _reload(service) else time.monotonic() + pause
            known_files, known_items = files, items
        elif items != known_items and await _refresh(service):
            known_items = items


async def _reload(service: Service) -> bool:
    """Whether it succeeded."""
    try:
        await asyncio.to_thread(service.served.reload)
    except Exception as error:
        service.metrics.reloads.labels("failed").inc()
        if isinstance(error, KenthashError):  # such as a model that is still being written
            logs.warning("reload failed: the old index and model stay", error=str(error))
        else:
            logs.failure("reload failed: the old index and model stay", error)
        return False
    service.metrics.reloads.labels("done").inc()
    logs.info("reloaded", items=service.served.current.stats.items)
    return True


async def _refresh(service: Service) -> bool:
    """Whether it succeeded; if not, the next check repeats it."""
    with service.served.use() as current:
        try:
            # By a thread that searches: each thread that uses an index keeps a connection with a cache of its own.
            await service.searchers.run(current.refresh)
        except Exception as error:  # which must not end the checks
            logs.warning("the index could not be read", error=str(error))
            return False
        return True


def _files_state(target: str, model: Path) -> list[tuple[int, ...]]:
    """Changes when the index or the model is replaced, not when items are added or removed, which needs no reload."""
    states = [_file_state(model / "config.json"), _file_state(model / "model.safetensors")]
    return states if "://" in target else [*states, _file_state(Path(target))[:1]]


def _items_state(target: str) -> list[tuple[int, ...]]:
    """Changes with the items of a local index."""
    return [] if "://" in target else [_file_state(Path(target)), _file_state(Path(f"{target}-wal"))]


def _file_state(file: Path) -> tuple[int, ...]:
    try:
        stat = file.stat()
    except OSError:
        return ()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
