"""The own index of a folder: `.kenthash.kh` in it, or in the user's cache where nothing can be written in the folder.
It is found again from the folder and from any folder below it."""

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kenthash.errors import KenthashError
from kenthash.search.engine import NoSuchIndex
from kenthash.search.folders.roots import OWN_INDEX, Roots, own_indexes
from kenthash.search.index import Index


def given_or_own_index(target: str | None) -> str:
    """The index that a command was given, else that of the current folder."""
    return target if target is not None else str(find_index(Path.cwd()))


def find_index(start: Path) -> Path:
    """The index of this folder, or of the nearest folder above it that has one."""
    index = _find(start.resolve())
    if index is None:
        raise NoSuchIndex(
            f"{start.resolve()}: no index here or in a folder above: make one with `kenthash index add FOLDER`, or say "
            "where it is with --index"
        )
    return index


def index_for(folder: Path) -> Path:
    """Where the pictures of a folder are to be indexed: in the index that `find_index` finds, else in a new one."""
    folder = folder.resolve()
    index = _find(folder)
    if index is not None:
        return index
    if os.access(folder, os.W_OK):
        return folder / OWN_INDEX
    for file, roots in _cached():
        if roots.known(folder) is not None:  # it was elsewhere, such as a disk that has another name today
            return file
    return own_indexes() / f"{folder.name}-{uuid.uuid4().hex[:8]}.kh"


def _find(folder: Path) -> Path | None:
    cached = {root.path: file for file, roots in _cached() for root in roots}
    for place in (folder, *folder.parents):
        if (place / OWN_INDEX).is_file():
            return place / OWN_INDEX
        if place in cached:
            return cached[place]
    return None


def _cached() -> Iterator[tuple[Path, Roots]]:
    """The indexes in the cache, each with its folders."""
    for file in sorted(own_indexes().glob("*.kh")):
        with suppress(KenthashError), Index.open(file) as index:  # one that is damaged is not found: it is made anew
            yield file, Roots(index)
