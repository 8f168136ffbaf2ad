"""Logs as JSON, one line an event, on standard error. What people look for is not in them unless asked for."""

import json
import logging
import sys
import time
import traceback
from typing import Any

MAX_TRACE = 4000  # characters of a trace


def write(event: str, level: str = "info", **values: Any) -> None:
    entry = {"time": _now(), "level": level, "event": event, **values}
    sys.stderr.write(json.dumps(entry, default=str) + "\n")
    sys.stderr.flush()


def write_error(event: str, error: BaseException, **values: Any) -> None:
    """With a trace: for what is not the request's fault."""
    trace = "".join(traceback.format_exception(error))[-MAX_TRACE:]
    write(event, "error", error=f"{type(error).__name__}: {error}", trace=trace, **values)


def _now() -> str:
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03}Z"


class JsonHandler(logging.Handler):
    """What other libraries log, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        extra = {}
        if record.exc_info and record.exc_info[1]:
            extra["trace"] = "".join(traceback.format_exception(record.exc_info[1]))[-MAX_TRACE:]
        write("log", record.levelname.lower(), logger=record.name, message=record.getMessage(), **extra)


def install() -> None:
    root = logging.getLogger()
    root.handlers[:] = [JsonHandler()]
