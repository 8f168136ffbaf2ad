"""Files that are either whole or not there, and files from elsewhere that are read or refused in one line.

A file is written beside its final name, flushed to disk, and renamed over it. A killed process leaves the old file
(or none) and at most a `.partial` sibling that the next write replaces.
"""

import errno
import hashlib
import importlib
import json
import logging
import math
import os
import re
import shutil
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import DataError

try:
    import fcntl
except ImportError:  # Windows, where `lock` uses msvcrt
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

MAX_INFLATED = 1 << 30  # bytes that a compressed file may inflate to, where that is more than the file itself has

LOCK_SECONDS = 0.1  # between two tries to take a lock, where the system cannot wait for it

HALF = re.compile("[\ud800-\udfff]")  # of a character: also a byte of a file name that is not UTF-8


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


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder` to fill; on success it takes its place, on an exception it is removed."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut. Windows opens no folders, and has no call for this."""
    if not hasattr(os, "O_DIRECTORY"):
        return
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
            lock(stream, wait=False)
        except BlockingIOError:
            log.warning("%s: another process is writing there; waiting for it to finish", folder)
            lock(stream)
        yield


def lock(stream: IO[Any], wait: bool = True) -> None:
    """Take the lock of an open file; it is released when the file is closed, also by the end of the process.

    Without `wait`, a lock that another process holds is a BlockingIOError.
    """
    if fcntl is not None:
        fcntl.flock(stream, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    msvcrt: Any = importlib.import_module("msvcrt")
    while True:
        try:
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)  # its own way of waiting gives up after 10 seconds
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            if not wait:
                raise BlockingIOError(error.errno, "another process holds the lock") from error
            time.sleep(LOCK_SECONDS)


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
            value = json.loads(HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
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


def load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file; whatever is wrong with it is a ValueError. A small file that declares huge arrays is
    refused before any of them is read, and so are pickled objects."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            declared = sum(member.file_size for member in members)
            if declared > max(MAX_INFLATED, path.stat().st_size):
                raise ValueError(f"its arrays would take {declared:,} bytes, far more than the file has")
            return {member.filename.removesuffix(".npy"): _read_member(archive, member) for member in members}
    except (OSError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(getattr(error, "strerror", None) or str(error)) from error


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """`zipfile` reads no more of a member than the archive declares; its own header may not claim more than that."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{member.filename} is an array of format {version}")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(stream)
        if kind.hasobject or math.prod(shape) * kind.itemsize != member.file_size - stream.tell():
            raise ValueError(f"{member.filename} is not an array of numbers or texts, or not as long as it claims")
    with archive.open(member) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array
