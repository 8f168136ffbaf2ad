"""Logs as JSON, one line an event, on standard error. What people look for is not in them unless asked for.

A server writes them from a thread of its own: a disk or a pipe that stalls must not hold up the event loop. What the
log cannot take is lost, and the service goes on.
"""

import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import orjson

MAX_TRACE = 4000  # characters of a trace
MAX_LINES = 10_000  # that wait to be written
PAUSE = 0.1  # seconds between two writes: each wakes a thread that wants the interpreter

_queue: SimpleQueue[str | None] | None = None  # of a server that runs; None in it is the end


def write(event: str, level: str = "info", **values: Any) -> None:
    entry = {"time": _now(), "level": level, "event": event, **values}
    line = _json(entry) + "\n"
    if _queue is None:
        _put(line)
    elif _queue.qsize() < MAX_LINES:
        _queue.put(line)


def write_error(event: str, error: BaseException, **values: Any) -> None:
    """With a trace: for what is not the request's fault."""
    trace = "".join(traceback.format_exception(error))[-MAX_TRACE:]
    write(event, "error", error=f"{type(error).__name__}: {error}", trace=trace, **values)


def _json(entry: dict[str, Any]) -> str:
    try:
        return orjson.dumps(entry, default=str).decode()
    except TypeError:  # half a character, or a number beyond 64 bits
        return json.dumps(entry, default=str)


def _now() -> str:
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03}Z"


def _put(text: str) -> None:
    with suppress(OSError, ValueError):  # a full disk, a reader that has gone, a closed stream
        sys.stderr.write(text)
        sys.stderr.flush()


def _drain(queue: SimpleQueue[str | None]) -> None:
    going = True
    while going:
        lines = [queue.get(), *(queue.get() for _ in range(queue.qsize()))]
        going = None not in lines
        _put("".join(line for line in lines if line is not None))
        if going:
            time.sleep(PAUSE)


class JsonHandler(logging.Handler):
    """What other libraries log, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        extra = {}
        if record.exc_info and record.exc_info[1]:
            extra["trace"] = "".join(traceback.format_exception(record.exc_info[1]))[-MAX_TRACE:]
        write("log", record.levelname.lower(), logger=record.name, message=record.getMessage(), **extra)


@contextmanager
def installed() -> Iterator[None]:
    """For as long as a server runs; at the end all is written."""
    global _queue
    root = logging.getLogger()
    root.handlers[:] = [JsonHandler()]
    queue: SimpleQueue[str | None] = SimpleQueue()
    thread = threading.Thread(target=_drain, args=(queue,), name="log", daemon=True)
    thread.start()
    _queue = queue
    try:
        yield
    finally:
        _queue = None
        queue.put(None)
        thread.join(5)  # seconds: the reader of a pipe may be stuck
