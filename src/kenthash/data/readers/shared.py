"""What readers share: text files from elsewhere, names that stay inside a folder, and notes on what was left out."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.data.dataset import DataProblem
from kenthash.errors import DataError
from kenthash.files import reading

EXAMPLES = 3
SHOWN = 300  # characters of a text from a file that a message shows


def read_lines(path: Path) -> list[str]:
    """The lines of a text file without their ends; bytes that are not UTF-8 (old Flickr tags) become U+FFFD."""
    with reading(path):
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    lines = text.split("\n")  # not splitlines: a tag may hold U+2028, which is no end of a line
    return lines[:-1] if lines[-1] == "" else lines


def inside(name: str) -> bool:
    """Whether a relative name, as a metadata file gives it, cannot lead out of its folder."""
    return name.strip("./") != "" and not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def file_names(folder: Path) -> frozenset[str]:
    """The names of the files in a folder, or none where there is no such folder: one look for many items."""
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except OSError:
        return frozenset()


def subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []


def multi_hot(rows: Sequence[Iterable[int]], classes: int) -> NDArray[np.uint8]:
    """Lists of class columns to labels [N, C]."""
    labels = np.zeros((len(rows), classes), dtype=np.uint8)
    for row, columns in enumerate(rows):
        for column in columns:
            labels[row, column] = 1
    return labels


def without_pictures(where: Path, what: str, missing: list[str], listed: int, remedy: str) -> list[DataProblem]:
    """The problem of items whose picture file is missing. Where that is most of them, the whole set is refused: its
    pictures lie elsewhere, and what can be learned from the rest would pass for a result on the set."""
    counts = f"{len(missing):,} of {listed:,}"
    if 2 * len(missing) > listed:
        raise DataError(f"{where}: {counts} pictures are not here, such as {printable(missing[0])}: {remedy}")
    return [DataProblem("warning", f"{what}: {counts}", remedy, missing)] if missing else []


def note(what: str, which: Sequence[str]) -> str:
    """One line on what was left out or lacks something: what, how many, and the first few."""
    examples = ", ".join(map(printable, which[:EXAMPLES])) + (", ..." if len(which) > EXAMPLES else "")
    return f"{what}: {len(which):,} ({examples})"


def printable(text: str) -> str:
    """A text from a file, for a message of one line: a name in it may hold line breaks, or be megabytes long."""
    start = text[:SHOWN] + ("..." if len(text) > SHOWN else "")
    return start if start.isprintable() else repr(start)[1:-1]
