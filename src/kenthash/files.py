"""Files that are either whole or not there, and files from elsewhere that are read or refused in one line.

A file is written beside its final name, flushed to disk, and renamed over it. A killed process leaves the old file
(or none) and at most a `.partial` sibling that the next write replaces.
"""

import fcntl
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import DataError

log = logging.getLogger(__name__)

_HALF = re.compile("[\ud800-\udfff]")


@contextmanager
def atomic_write(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a sibling of `path` for writing; on success it becomes `path`, on an exception it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open(mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one process at a time write below `folder`: the next one waits, and then looks whether the work is done."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning("%s: another process is writing there; waiting for it to finish", folder)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def write_json(path: Path, value: Any) -> None:
    with atomic_write(path, "w") as stream:
        json.dump(value, stream, indent=2, ensure_ascii=False)
        stream.write("\n")


def expand(path: Path) -> Path:
    """With ~ and ~name as the folders they mean. A name that nobody has stays as it is written."""
    with suppress(RuntimeError):
        return path.expanduser()
    return path


def cache_folder() -> Path:
    """The user's: `$XDG_CACHE_HOME/kenthash`, or `~/.cache/kenthash`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kenthash"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Around the code that reads a file: what the disk or the encoding does wrong is told in one line."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text: {error.reason}: save it as UTF-8") from error


def parse_json(text: str) -> Any:
    """A JSON value that a stranger wrote; whatever is wrong with it is a ValueError.

    JSON can spell half a character (a caption that was cut in the middle of an emoji ends in "\\ud83d"), which no file,
    database or tokenizer takes: it becomes U+FFFD.
    """
    try:
        value = json.loads(text)
        if "\\u" in text:  # the one way to spell a half
            value = json.loads(_HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    return value


def read_json(path: Path) -> Any:
    with reading(path):
        text = path.read_text(encoding="utf-8-sig")
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON: {error}") from error


def content_digest(*paths: Path) -> str:
    """Of what is in the files, in this order; their names do not count."""
    total = hashlib.sha256()
    for path in paths:
        with reading(path), path.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def load_array(path: Path) -> NDArray[Any]:
    """Map an .npy file into memory, read-only; pickled objects inside are refused."""
    with reading(path):
        try:
            return np.lib.format.open_memmap(path, mode="r")
        except ValueError as error:
            raise DataError(f"{path}: not an .npy file of numbers: {error}") from error
