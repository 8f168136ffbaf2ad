"""Has a picture file changed? One rule for the feature cache and for `index add`: a file is the same as long as its
size and its time of change are, or else its content."""

import hashlib
import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from kenthash.progress import cores, track

DIGEST = 32  # characters of a content's digest
BLOCK = 500  # files looked up at a time


class FileState(NamedTuple):
    size: int
    mtime: float
    digest: str


def file_state(path: Path, known: FileState | None) -> FileState:
    """The state of a file, which is read only where its size or time is not the known one.

    The time is taken before the content: should the file change in between, it is read again the next time.
    """
    about = path.stat()
    if known is not None and (known.size, known.mtime) == (about.st_size, about.st_mtime):
        return known
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()[:DIGEST]
    return FileState(about.st_size, about.st_mtime, digest)


class FileRecord:
    """States of files that were read before, kept in an SQLite file; where it cannot be, files are read every time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def digests(self, files: Sequence[Path]) -> list[str]:
        """The digest of each file's content, "" of one that cannot be read."""
        with ThreadPoolExecutor(min(8, cores())) as pool:
            digests: list[str] = []
            for start in track(range(0, len(files), BLOCK), "looking for changes", unit="blocks"):
                block = files[start : start + BLOCK]
                known = self._known(block)
                states = list(pool.map(_state, block, known))
                self._keep(block, known, states)
                digests += [state.digest if state is not None else "" for state in states]
        return digests

    def _known(self, files: Sequence[Path]) -> list[FileState | None]:
        names, rows = [_key(file) for file in files], {}
        with suppress(sqlite3.Error, OSError), self._open() as store:
            marks = ",".join("?" * len(names))
            query = f"SELECT path, size, mtime, digest FROM files WHERE path IN ({marks})"
            rows = {name: FileState(*state) for name, *state in store.execute(query, names)}
        return [rows.get(name) for name in names]

    def _keep(
        self, files: Sequence[Path], known: Sequence[FileState | None], states: Sequence[FileState | None]
    ) -> None:
        new = [
            (_key(file), *state)
            for file, old, state in zip(files, known, states, strict=True)
            if state is not None and state != old
        ]
        if new:
            with suppress(sqlite3.Error, OSError), self._open() as store, store:
                store.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", new)

    def _open(self) -> closing[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        store = sqlite3.connect(self.path)
        store.execute(
            "CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, size, mtime REAL, digest) WITHOUT ROWID"
        )
        return closing(store)


def _key(file: Path) -> bytes:
    return os.fsencode(os.path.abspath(file))  # noqa: PTH100 (a name may be no text)


def _state(path: Path, known: FileState | None) -> FileState | None:
    try:
        return file_state(path, known)
    except OSError:
        return None
