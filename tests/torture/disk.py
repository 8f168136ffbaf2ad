"""A disk that loses power: which contents it may have, given the calls that were made before.

What a file or folder was told to hold is certain only after fsync. Of later calls, any may have reached the disk or may
not, in any order; a write may have stopped between two sectors. fsync of a file makes its content certain, not its
name, which needs fsync of its folder (POSIX promises no more; journaling file systems keep more). A write changes no
byte outside of its range, which is what SQLite assumes too (SQLITE_IOCAP_POWERSAFE_OVERWRITE).
"""

import random
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from shim import Kind, Record

SECTOR = 512
Content = dict[str, bytes]  # of files by name


@dataclass
class File:
    changes: list[Record] = field(default_factory=list)
    certain: int = 0  # so many of the changes


@dataclass
class NameChange:
    kind: Kind
    name: str
    to: str
    file: File | None
    is_certain: bool = False


class Disk:
    def __init__(self) -> None:
        self.names: dict[str, File] = {}
        self.changes: list[NameChange] = []
        self._inodes: dict[int, File] = {}

    def apply(self, record: Record) -> None:
        if record.kind == Kind.CREATE:
            file = self._inodes[record.inode] = self.names[record.name] = File()
            self.changes.append(NameChange(record.kind, record.name, "", file))
        elif record.kind in (Kind.WRITE, Kind.TRUNCATE, Kind.CONTENT):
            self._inodes[record.inode].changes.append(record)
        elif record.kind == Kind.SYNC:
            if record.inode in self._inodes:
                file = self._inodes[record.inode]
                file.certain = len(file.changes)
            for change in self.changes:
                if str(PurePath(change.to or change.name).parent) == record.name:
                    change.is_certain = True
        elif record.kind in (Kind.RENAME, Kind.LINK, Kind.UNLINK):
            file = self.names[record.name]
            if record.to:
                self.names[record.to] = file
            if record.kind != Kind.LINK:
                del self.names[record.name]
            self.changes.append(NameChange(record.kind, record.name, record.to, file))

    def all_kept(self) -> Content:
        """Everything has reached the disk, as after a kill."""
        return {name: _content(file.changes) for name, file in self.names.items()}

    def none_kept(self) -> Content:
        """Nothing that is not certain has."""
        names = _names([change for change in self.changes if change.is_certain])
        return {name: _content(file.changes[: file.certain]) for name, file in names.items()}

    def some_kept(self, rng: random.Random) -> Content:
        """Some of it has. The share differs from one time to the next."""
        share = rng.random()
        names = _names([change for change in self.changes if change.is_certain or rng.random() < share])
        content = {}
        for name, file in sorted(names.items()):
            later = [_cut(rng, change) for change in file.changes[file.certain :] if rng.random() < share]
            content[name] = _content(file.changes[: file.certain] + later)
        return content


def _names(changes: list[NameChange]) -> dict[str, File]:
    names: dict[str, File] = {}
    for change in changes:
        assert change.file is not None
        if change.kind in (Kind.RENAME, Kind.UNLINK):
            names.pop(change.name, None)
        if change.kind == Kind.CREATE:
            names[change.name] = change.file
        elif change.to:
            names[change.to] = change.file
    return names


def _cut(rng: random.Random, change: Record) -> Record:
    if change.kind == Kind.TRUNCATE or rng.random() < 0.8 or len(change.data) <= SECTOR:
        return change
    written_bytes = rng.randrange(1, len(change.data) // SECTOR + 1) * SECTOR
    return Record(Kind.WRITE, change.inode, change.offset, "", "", change.data[:written_bytes])


def _content(changes: list[Record]) -> bytes:
    content = bytearray()
    for change in changes:
        if change.kind == Kind.TRUNCATE:
            del content[change.offset :]
            content.extend(bytes(change.offset - len(content)))
        else:
            if change.kind == Kind.CONTENT:
                del content[len(change.data) :]
            content.extend(bytes(max(change.offset - len(content), 0)))
            content[change.offset : change.offset + len(change.data)] = change.data
    return bytes(content)


def write_content(content: Content, root: Path, folder: Path) -> None:
    """Put files from below `root` into an empty folder."""
    for name, data in content.items():
        file = folder / PurePath(name).relative_to(root)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
