"""Logs: one JSON line per event on standard error. The words of queries are logged only on request.

A server writes them from a thread of its own (the standard queue handler and queue listener): a disk or a pipe that
stalls must not hold up the event loop. Lines that the log cannot take are dropped, and the service continues.
"""

import json
import logging
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any

import orjson

MAX_TRACE = 4000  # characters
MAX_WAITING = 10_000  # lines
PAUSE = 0.1  # seconds between two writes: each takes the interpreter from the threads that answer requests
MAX_STOP = 5.0  # seconds to write the last lines: the reader of a pipe may have stopped reading

_logger = logging.getLogger("kenthash.service")
_logger.setLevel(logging.INFO)


def info(event: str, **fields: Any) -> None:
    _log(logging.INFO, event, fields)


def warning(event: str, **fields: Any) -> None:
    _log(logging.WARNING, event, fields)


def failure(event: str, error: BaseException, **fields: Any) -> None:
    """With a traceback: for errors that are not the request's fault."""
    _log(logging.ERROR, event, {**fields, "error": f"{type(error).__name__}: {error}"}, error)


def _log(level: int, event: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
    """As `Logger.log`, but without a search for the calling line, which walks the stack in every request."""
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    record = logging.LogRecord(_logger.name, level, "", 0, event, None, exc_info)
    record.fields = fields
    _logger.handle(record)


@contextmanager
def json_on_stderr() -> Iterator[None]:
    """Write the logs of all libraries while a server runs; at the end nothing is left unwritten."""
    lines: SimpleQueue[str | None] = SimpleQueue()
    handler = _DroppingQueueHandler(lines)
    handler.setFormatter(JsonFormatter())
    listener = _BurstListener(lines)
    root = logging.getLogger()
    handlers, root.handlers[:] = root.handlers[:], [handler]
    # Not in the lines, but looked up for each of them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    listener.start()
    try:
        yield
    finally:
        logging.logThreads = logging.logProcesses = logging.logMultiprocessing = True
        root.handlers[:] = handlers
        listener.stop()


@contextmanager
def json_without_a_thread() -> Iterator[None]:
    """The same lines, written at once: for a process that has few of them and must have no thread."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    handlers, root.handlers[:] = root.handlers[:], [handler]
    try:
        yield
    finally:
        root.handlers[:] = handlers


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        created = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {"time": created.replace("+00:00", "Z"), "level": record.levelname.lower()}
        fields = getattr(record, "fields", None)
        if fields is None:  # of another library
            entry |= {"event": "log", "logger": record.name, "message": record.getMessage()}
        else:
            entry |= {"event": record.msg, **fields}
        if record.exc_info and record.exc_info[1]:
            entry["trace"] = "".join(traceback.format_exception(record.exc_info[1]))[-MAX_TRACE:]
        try:
            return orjson.dumps(entry, default=str).decode()
        except TypeError:  # half of a surrogate pair, or a number beyond 64 bits
            return json.dumps(entry, default=str)


class _DroppingQueueHandler(QueueHandler):
    """Puts lines, not records, into the queue."""

    def prepare(self, record: logging.LogRecord) -> str:
        return self.format(record)

    def enqueue(self, record: Any) -> None:
        if self.queue.qsize() < MAX_WAITING:  # type: ignore[attr-defined]
            self.queue.put_nowait(record)


class _BurstListener(QueueListener):
    """Writes all lines that have come since the last write at once."""

    def __init__(self, queue: "SimpleQueue[str | None]") -> None:
        super().__init__(queue)
        self._lines: list[str] = []

    def dequeue(self, block: bool) -> Any:
        if self.queue.empty():  # type: ignore[attr-defined]
            self._write()
            time.sleep(PAUSE)
        line = super().dequeue(block)
        if line is None:  # the end, as `stop` marks it
            self._write()
        return line

    def handle(self, record: Any) -> None:
        self._lines.append(f"{record}\n")

    def stop(self) -> None:
        self.enqueue_sentinel()
        if self._thread is not None:
            self._thread.join(MAX_STOP)

    def _write(self) -> None:
        lines, self._lines = self._lines, []
        with suppress(OSError, ValueError):  # a full disk, a reader that has gone, a closed stream
            sys.stderr.write("".join(lines))
            sys.stderr.flush()
