"""The folders whose pictures an index holds, and where they are now.

An id is the name that a folder has in the index and the path of a picture below it, `photos/2024/a.jpg`; in a folder's
own index, `.kenthash.kh`, it is the path alone, `2024/a.jpg`. Neither changes when the folder is moved or renamed.
Where a folder is stands in a note of the index: relative to the index file where it is the folder of that file or below
it, so that both can be moved together.
"""

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kenthash.errors import DataError
from kenthash.files import cache_folder
from kenthash.search.engine import Item, Metadata
from kenthash.search.index import Index
from kenthash.search.servers.addresses import without_password

OWN_INDEX = ".kenthash.kh"  # the name of a folder's own index, in that folder
ROOTS = "roots"  # a note: the folders of the index, as JSON
PAGE = 10_000  # ids listed at a time
SAMPLE = 50  # pictures by which a folder that was moved is recognised


@dataclass(frozen=True)
class Root:
    """A folder that was indexed."""

    name: str  # the beginning of its ids; "" where ids are paths below the folder
    path: Path  # where it is now, absolute
    exclude: tuple[str, ...] = ()  # patterns of files that are left out
    unfinished: str | None = None  # the folder below it, "." for itself, that is being added, or was until a kill

    @property
    def prefix(self) -> str:
        return f"{self.name}/" if self.name else ""

    def begun(self, folder: Path) -> "Root":
        """This one while a folder, which it is or which is below it, is being added."""
        within = folder.relative_to(self.path).as_posix()
        return replace(self, unfinished=within if self._is_finished_by(folder) else ".")

    def ended(self, folder: Path) -> "Root":
        """This one, as it was before `begun`, after the folder has been added."""
        return replace(self, unfinished=None) if self._is_finished_by(folder) else self

    def _is_finished_by(self, folder: Path) -> bool:
        return self.unfinished is None or (self.path / self.unfinished).is_relative_to(folder)


class Roots:
    """The folders of one index, by name."""

    def __init__(self, index: Index) -> None:
        self._index, self._file = index, index_file(index)
        self._roots = self._recorded()

    def __iter__(self) -> Iterator[Root]:
        return iter(self._roots.values())

    def of_id(self, id: str) -> Root | None:
        """The folder that a picture with this id is in."""
        return self._roots.get(id.partition("/")[0]) or self._roots.get("")

    def has_file(self, id: str, metadata: Metadata) -> bool:
        """Whether an item is a picture in a file, which may have been moved or deleted since it was indexed."""
        return isinstance(metadata.get("path"), str) or ("digest" in metadata and self.of_id(id) is not None)

    def path_of(self, id: str, metadata: Metadata) -> Path | None:
        """The file of an item; None where it has none."""
        if isinstance(recorded := metadata.get("path"), str):  # as of version 0.1.0, or added in another way
            return Path(recorded)
        root = self.of_id(id)
        return None if root is None or "digest" not in metadata else root.path / id.removeprefix(root.prefix)

    def id_of(self, name: str) -> str:
        """The id that is meant by a name: that of the picture in this file, else the name itself."""
        path = Path(name).resolve()
        for root in self:
            if path.is_relative_to(root.path) and path.is_file():
                return root.prefix + path.relative_to(root.path).as_posix()
        return name

    def unfinished_warning(self, target: str | None = None) -> str | None:
        """A warning, in one line, where a folder was not added to its end; `target` is the index, unless its own."""
        folders = [root.path / root.unfinished for root in self if root.unfinished is not None]
        if not folders:
            return None
        option = "" if target is None else f" --index {shlex.quote(without_password(target))}"
        commands = " and ".join(f"`kenthash index add {shlex.quote(str(folder))}{option}`" for folder in folders)
        return f"this index is unfinished: run {commands} to go on, unless it is running"

    def find(self, folder: Path) -> Root:
        """The folder of the index that this folder is, or is in; else a new one, which `keep` adds."""
        known = self.known(folder)
        if known is not None:
            return known
        is_own = self._file is not None and self._file in (folder / OWN_INDEX, own_indexes() / self._file.name)
        return Root("" if is_own else self._free_name(folder.name), folder)

    def known(self, folder: Path) -> Root | None:
        """The folder of the index that this folder is, or is in. One that is not where it was is recognised by its
        pictures: half of them or more have the names and sizes that are recorded."""
        if ROOTS not in self._index.notes():
            self._roots = _roots_of_old_items(self._index) | self._roots
        for root in sorted(self, key=lambda root: len(root.path.parts), reverse=True):
            if folder.is_relative_to(root.path):
                return root
        for root in self:
            if not root.path.exists() and self._resembles(root, folder):
                return replace(root, path=folder)
        return None

    def keep(self, root: Root) -> None:
        """Record where a folder is, and what is left out of it. Another process may have recorded others meanwhile."""
        recorded = self._recorded()
        self._roots = self._roots | recorded | {root.name: root}
        if recorded.get(root.name) != root:
            self._index.note(
                ROOTS, json.dumps({name: self._written(known_root) for name, known_root in self._roots.items()})
            )

    def _recorded(self) -> dict[str, Root]:
        notes = self._index.notes()
        return self._read(notes[ROOTS]) if ROOTS in notes else {}

    def _read(self, note: str) -> dict[str, Root]:
        base = self._file.parent if self._file else Path("/")
        try:
            return {
                name: Root(
                    name,
                    Path(os.path.normpath(base / entry["path"])),
                    tuple(entry["exclude"]),
                    None if entry.get("unfinished") is None else str(entry["unfinished"]),
                )
                for name, entry in json.loads(note).items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"the index does not say where its folders are: its note {ROOTS!r} is damaged") from error

    def _written(self, root: Root) -> dict[str, object]:
        base = self._file.parent if self._file else None
        within = base is not None and root.path.is_relative_to(base)
        path = root.path.relative_to(base).as_posix() if base is not None and within else str(root.path)
        unfinished = {} if root.unfinished is None else {"unfinished": root.unfinished}
        return {"path": path, "exclude": list(root.exclude), **unfinished}

    def _resembles(self, root: Root, folder: Path) -> bool:
        names = [name for name in self._index.list_ids(root.prefix, SAMPLE) if name.startswith(root.prefix)]
        items = [item for item in self._index.get(names) if item is not None and "digest" in item.metadata]
        same = sum(_size(folder / item.id.removeprefix(root.prefix)) == item.metadata["size"] for item in items)
        return 0 < len(items) <= 2 * same

    def _free_name(self, name: str) -> str:
        """The name, or the name and a number: no other folder has it, and no id begins with it."""
        number, free = 1, name
        while free in self._roots or any(id.startswith(f"{free}/") for id in self._index.list_ids(f"{free}/", 1)):
            number += 1
            free = f"{name} {number}"
        return free


def own_indexes() -> Path:
    """Where the own indexes of folders are in which nothing can be written."""
    return cache_folder() / "indexes"


def index_file(index: Index) -> Path | None:
    """The file of a local index."""
    path = getattr(index.engine, "path", None)
    return path.absolute() if isinstance(path, Path) else None


def _roots_of_old_items(index: Index) -> dict[str, Root]:
    """Version 0.1.0 recorded the path of each picture instead of the folders."""
    roots: dict[str, Root] = {}
    after = ""
    while names := index.list_ids(after, PAGE):
        for item in index.get(names):
            if item is not None and (path := _old_root(item)) is not None:
                roots.setdefault(path.name, Root(path.name, path))
        after = names[-1]
    return roots


def _old_root(item: Item) -> Path | None:
    path = item.metadata.get("path")
    name, _, below = item.id.partition("/")
    if not isinstance(path, str) or not path.endswith(f"{os.sep}{name}{os.sep}{below}"):
        return None
    return Path(path.removesuffix(f"{os.sep}{below}"))


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
