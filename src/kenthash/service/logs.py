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
    _logger.info(event, extra={"fields": fields})


def warning(event: str, **fields: Any) -> None:
    _logger.warning(event, extra={"fields": fields})


def failure(event: str, error: BaseException, **fields: Any) -> None:
    """With a traceback: for errors that are not the request's fault."""
    fields["error"] = f"{type(error).__name__}: {error}"
    _logger.error(event, exc_info=error, extra={"fields": fields})


@contextmanager
def json_on_stderr() -> Iterator[None]:
    """Write the logs of all libraries while a server runs; at the end nothing is left unwritten."""
    records: SimpleQueue[Any] = SimpleQueue()
    handler = _DroppingQueueHandler(records)
    handler.setFormatter(JsonFormatter())
    listener = _BurstListener(records, _StderrHandler())
    root = logging.getLogger()
    handlers, root.handlers[:] = root.handlers[:], [handler]
    listener.start()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        listener.stop()


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {"time": f"{seconds}.{int(record.msecs):03}Z", "level": record.levelname.lower()}
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
    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """As the standard one, but without a copy of the record: no other handler uses it."""
        record.msg, record.args, record.exc_info = self.format(record), None, None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        if self.queue.qsize() < MAX_WAITING:  # type: ignore[attr-defined]
            self.queue.put_nowait(record)


class _StderrHandler(logging.Handler):
    """Collects lines until `flush`."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record) + "\n")

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        with suppress(OSError, ValueError):  # a full disk, a reader that has gone, a closed stream
            sys.stderr.write("".join(lines))
            sys.stderr.flush()


class _BurstListener(QueueListener):
    """Writes all lines that have come since the last write at once."""

    def dequeue(self, block: bool) -> Any:
        if self.queue.empty():  # type: ignore[attr-defined]
            self._flush()
            time.sleep(PAUSE)
        record = super().dequeue(block)
        if record is None:  # the end, as `stop` marks it
            self._flush()
        return record

    def stop(self) -> None:
        self.enqueue_sentinel()
        if self._thread is not None:
            self._thread.join(MAX_STOP)

    def _flush(self) -> None:
        for handler in self.handlers:
            handler.flush()
