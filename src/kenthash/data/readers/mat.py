"""The field's three MATLAB files, as published code of cross-modal hashing writes and reads them.

    DIR/index.mat    `index`    N picture paths, mostly absolute paths of the machine that wrote them
    DIR/caption.mat  `caption`  N strings or N cells of strings; or DIR/caption.txt, a line an item
    DIR/label.mat    `category` multi-hot [N, C]
    DIR/classes.txt             optional, a class name a line; without it classes are class_0, class_1, ...

The pictures are looked for in DIR and in its folders under the longest tail of each path that is there: of
/home/a/coco/train2017/9.jpg first home/a/coco/train2017/9.jpg, at last 9.jpg. Nothing outside DIR is opened unless
its owner has linked a folder of pictures into it.
"""

from itertools import product
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from kenthash.data.dataset import Dataset
from kenthash.data.readers.matlab import read_numbers, read_strings
from kenthash.data.readers.source import note, read_lines, subfolders
from kenthash.errors import DataError


def is_mat(path: Path) -> bool:
    return (path / "index.mat").is_file() or (path / "label.mat").is_file()


def read_mat(path: Path) -> Dataset:
    labels = _read_labels(path / "label.mat")
    names = [" ".join(row) for row in read_strings(path / "index.mat", ("index", "indexs"), len(labels))]
    texts = _read_texts(path, len(labels))
    classes = [f"class_{column}" for column in range(labels.shape[1])]
    if (path / "classes.txt").is_file():
        classes = [line.strip() for line in read_lines(path / "classes.txt")]
        if len(classes) != labels.shape[1]:
            raise DataError(
                f"{path / 'classes.txt'}: {len(classes)} names, but label.mat has {labels.shape[1]} columns"
            )
    pictures = _find_pictures(path, names)
    rows = sorted(pictures)
    if not rows:
        raise DataError(
            f"{path}: none of the {len(names):,} pictures, such as {names[0]}, is here: link their folder here"
        )
    notes = []
    if missing := [names[row] for row in range(len(names)) if row not in pictures]:
        notes.append(note("items left out, no picture file", missing))
    if silent := [names[row] for row in rows if not any(texts[row])]:
        notes.append(note("items without a text", silent))
    return Dataset(
        name=path.name,
        ids=[pictures[row].relative_to(path).as_posix() for row in rows],
        labels=labels[rows],
        classes=classes,
        pictures=[pictures[row] for row in rows],
        texts=[texts[row] or [""] for row in rows],
        notes=notes,
    )


def _read_labels(path: Path) -> NDArray[np.uint8]:
    labels = read_numbers(path, ("category", "label", "labels"))
    if labels.ndim != 2 or not ((labels == 0) | (labels == 1)).all():
        raise DataError(f"{path}: must be a table [items, classes] of 0 and 1, is {labels.dtype} {labels.shape}")
    return labels.astype(np.uint8)


def _read_texts(path: Path, items: int) -> list[list[str]]:
    if (path / "caption.mat").is_file():
        return read_strings(path / "caption.mat", ("caption", "captions", "tags"), items)
    lines = read_lines(path / "caption.txt")
    if len(lines) != items:
        raise DataError(f"{path / 'caption.txt'}: {len(lines)} lines, but label.mat has {items} rows")
    return [[line.strip()] for line in lines]


def _find_pictures(path: Path, names: list[str]) -> dict[int, Path]:
    """Row -> picture, for the rows whose picture is there."""
    homes = [path, *subfolders(path)]
    ways = [(0, path)]  # (leading parts dropped, folder): what worked for earlier names is tried first
    found = {}
    for row, name in enumerate(names):
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if ".." in parts or "\0" in name:
            continue
        parts = parts[1:] if parts and parts[0] == "/" else parts
        for way in (*ways, *product(range(len(parts)), homes)):
            dropped, home = way
            picture = home.joinpath(*parts[dropped:])
            if dropped < len(parts) and _is_file(picture):
                found[row] = picture
                if way not in ways:
                    ways.append(way)
                break
    return found


def _is_file(path: Path) -> bool:
    """Path.is_file raises where a name is too long for any file."""
    try:
        return path.is_file()
    except OSError:
        return False
