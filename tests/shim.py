"""The library `shim.c`: compiled, loaded into a process, and what it has recorded."""

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from tempfile import gettempdir

SOURCE = Path(__file__).with_name("shim.c")
HEAD = struct.Struct("=6Q")


class Kind(IntEnum):
    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC = 4
    RENAME = 5
    LINK = 6
    UNLINK = 7
    MKDIR = 8
    RMDIR = 9
    NOTE = 10
    CONTENT = 11


@dataclass(frozen=True)
class Record:
    kind: Kind
    inode: int
    offset: int
    name: str
    to: str
    data: bytes


def compiled_shim() -> Path:
    """The library, compiled once per user and version of its source. Without a compiler this is an OSError."""
    stamp = f"{SOURCE.stat().st_mtime_ns}-{os.getuid()}"
    library = Path(gettempdir()) / f"kenthash-shim-{stamp}.so"
    if not library.exists():
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise OSError("there is no C compiler: install gcc")
        partial = library.with_suffix(f".{os.getpid()}")
        options = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(partial), str(SOURCE), "-ldl", "-lpthread"]
        completed = subprocess.run([compiler, *options], capture_output=True, text=True)
        if completed.returncode:
            raise OSError(f"{SOURCE.name} does not compile: {completed.stderr}")
        partial.replace(library)
    return library


def shimmed(root: Path, log: Path | None = None, full: Path | None = None) -> dict[str, str]:
    """The environment of a process whose calls on files below `root` are counted; `log` records them, and while the
    file `full` exists, the disk is full."""
    environment = {**os.environ, "LD_PRELOAD": str(compiled_shim()), "SHIM_ROOT": str(root)}
    if log is not None:
        environment["SHIM_LOG"] = str(log)
    if full is not None:
        environment["SHIM_FULL"] = str(full)
    tests = [SOURCE.parent, SOURCE.parent / "torture", SOURCE.parent / "encoders"]
    search_path = [*map(str, tests), *filter(None, [os.environ.get("PYTHONPATH")])]
    return environment | {"PYTHONPATH": os.pathsep.join(search_path)}


def run_shimmed(environment: dict[str, str], script: str, *arguments: str) -> str:
    """Run a script of tests/torture in such an environment; what it prints."""
    command = [sys.executable, str(SOURCE.parent / "torture" / script), *arguments]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True)
    if completed.returncode:
        raise AssertionError(
            f"{script} {' '.join(arguments)} ended with {completed.returncode}: {completed.stderr[-2000:]}"
        )
    return completed.stdout


class Shim:
    """For the process into which the library is loaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.shim_failed.restype = ctypes.c_long

    def note(self, text: str) -> None:
        """Put a line among the records."""
        self._library.shim_note(text.encode())

    def fail(self, number: int, error: int) -> None:
        """Let the call with this number, counted from now on, fail; 0 for none."""
        self._library.shim_fail(ctypes.c_long(number), ctypes.c_int(error))

    def has_failed(self) -> bool:
        return bool(self._library.shim_failed())


def read_records(log: Path) -> Iterator[Record]:
    with log.open("rb") as stream:
        while head := stream.read(HEAD.size):
            kind, inode, offset, name, to, length = HEAD.unpack(head)
            first, second = os.fsdecode(stream.read(name)), os.fsdecode(stream.read(to))
            yield Record(Kind(kind), inode, offset, first, second, stream.read(length))
