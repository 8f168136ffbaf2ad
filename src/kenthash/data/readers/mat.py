"""The field's three MATLAB files, as published code of cross-modal hashing writes and reads them.

    DIR/index.mat    `index`    N picture paths, mostly absolute paths of the machine that wrote them
    DIR/caption.mat  `caption`  N strings or N cells of strings; or DIR/caption.txt, one line per item
    DIR/label.mat    `category` multi-hot [N, C]
    DIR/classes.txt             optional, one class name per line; without it classes are class_0, class_1, ...

The pictures are looked for in DIR and in its folders under the longest tail of each path that is there: of
/home/a/coco/train2017/9.jpg first home/a/coco/train2017/9.jpg, at last 9.jpg. Nothing outside DIR is opened unless
its owner has linked a folder of pictures into it.

Versions 4 to 7 of MATLAB's format are read by scipy. Version 7.3 is HDF5 and needs h5py. Strings come in many shapes: a
padded character matrix, a cell of strings, a cell of cells. A file whose content would take more than 2 GiB of
memory, or end the process inside of scipy, is refused before it is read (see mat_sizes.py). Of HDF5 only what MATLAB
writes is read: no values that lie in other files, and none of variable length.
"""

import importlib
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.data.dataset import Dataset
from kenthash.data.readers.mat_sizes import NODE, MemoryCount, check_sizes
from kenthash.data.readers.shared import note, printable, read_lines, subfolders, without_pictures
from kenthash.errors import DataError


def is_mat(path: Path) -> bool:
    return (path / "index.mat").is_file() or (path / "label.mat").is_file()


def read_mat(path: Path) -> Dataset:
    labels = _read_labels(path / "label.mat")
    names = [" ".join(row) for row in _read_strings(path / "index.mat", ("index", "indexs"), len(labels))]
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
    missing = [name for row, name in enumerate(names) if row not in pictures]
    problems = without_pictures(path, "items left out, no picture file", missing, len(names), "link their folder here")
    notes = []
    if without_text := [names[row] for row in rows if not any(texts[row])]:
        notes.append(note("items without a text", without_text))
    return Dataset(
        name=path.name,
        ids=[pictures[row].relative_to(path).as_posix() for row in rows],
        labels=labels[rows],
        classes=classes,
        pictures=[pictures[row] for row in rows],
        texts=[texts[row] or [""] for row in rows],
        notes=notes,
        problems=problems,
    )


def _read_labels(path: Path) -> NDArray[np.uint8]:
    labels = _read_numbers(path, ("category", "label", "labels"))
    if labels.ndim != 2 or not ((labels == 0) | (labels == 1)).all():
        raise DataError(f"{path}: must be a table [items, classes] of 0 and 1, is {labels.dtype} {labels.shape}")
    return labels.astype(np.uint8)


def _read_texts(path: Path, items: int) -> list[list[str]]:
    if (path / "caption.mat").is_file():
        return _read_strings(path / "caption.mat", ("caption", "captions", "tags"), items)
    lines = read_lines(path / "caption.txt")
    if len(lines) != items:
        raise DataError(f"{path / 'caption.txt'}: {len(lines)} lines, but label.mat has {items} rows")
    return [[line.strip()] for line in lines]


def _find_pictures(path: Path, names: list[str]) -> dict[int, Path]:
    """Row -> picture, for the rows whose picture is there."""
    folders = [path, *subfolders(path)]
    lookups = [(0, path)]  # (leading parts dropped, folder): what worked for earlier names is tried first
    pictures = {}
    for row, name in enumerate(names):
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if ".." in parts or "\0" in name:
            continue
        parts = parts[1:] if parts and parts[0] == "/" else parts
        for lookup in (*lookups, *product(range(len(parts)), folders)):
            dropped, folder = lookup
            picture = folder.joinpath(*parts[dropped:])
            if dropped < len(parts) and _is_file(picture):
                pictures[row] = picture
                if lookup not in lookups:
                    lookups.append(lookup)
                break
    return pictures


def _is_file(path: Path) -> bool:
    """Path.is_file raises where a name is too long for any file."""
    try:
        return path.is_file()
    except OSError:
        return False


def _read_numbers(path: Path, names: tuple[str, ...]) -> NDArray[Any]:
    value = _read_variable(path, names)
    if hasattr(value, "toarray"):  # a sparse matrix
        MemoryCount(path).take(math.prod(value.shape) * value.dtype.itemsize)
        value = value.toarray()
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "biuf":
        raise DataError(f"{path}: holds {numbers.dtype}, not numbers")
    return numbers


def _read_strings(path: Path, names: tuple[str, ...], rows: int) -> list[list[str]]:
    """One list of strings for each of `rows` items, padding stripped and empty strings left out."""
    value = np.asarray(_read_variable(path, names))
    if value.dtype.kind not in "UO":
        raise DataError(f"{path}: holds {value.dtype}, not strings")
    table = value.squeeze()
    if table.ndim > 1 and table.shape[0] != rows and table.shape[-1] == rows:
        table = np.moveaxis(table, -1, 0)
    if rows == 0 or table.size % rows or table.size == 0:
        raise DataError(f"{path}: {table.size} strings cannot be divided among {rows} items")
    return [[text for cell in row for text in _flatten(cell) if text] for row in table.reshape(rows, -1)]


def _flatten(cell: Any) -> Iterator[str]:
    if isinstance(cell, str):
        yield cell.strip()
    else:
        for inner in np.asarray(cell).ravel():
            # An empty string in a cell is an empty array; a string that stands alone is an array of one.
            yield from _flatten(inner if isinstance(inner, (str, np.ndarray)) else str(inner))


def _read_variable(path: Path, names: tuple[str, ...]) -> Any:
    from scipy.io import loadmat, whosmat  # not above: the other readers do without scipy

    try:
        check_sizes(path)
        MemoryCount(path).take(sum(8 * math.prod(shape) for _, shape, kind in whosmat(path) if kind != "sparse"))
        variables = loadmat(path)
    except DataError:
        raise
    except NotImplementedError:
        variables = _read_hdf5(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a damaged file raises anything: ValueError, TypeError, zlib.error, MatReadError
        raise DataError(f"{path}: not a MATLAB file that can be read: {printable(str(error))}") from error
    candidates = {name: value for name, value in variables.items() if not name.startswith(("_", "#"))}
    for name in names:
        if name in candidates:
            return candidates[name]
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    others = printable(", ".join(sorted(candidates))) or "nothing"
    raise DataError(f"{path}: no variable {' or '.join(names)}, only {others}")


def _read_hdf5(path: Path) -> dict[str, Any]:
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise DataError(
            f"{path}: MATLAB 7.3 format needs h5py: pip install 'kenthash[mat73]', or save it again with save -v7 in "
            "MATLAB"
        ) from error
    try:
        with h5py.File(path, "r") as file:
            reader = _Hdf5Reader(path, file, h5py)
            return {name: reader.variable(name) for name in file if not name.startswith("#")}
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path}: not a MATLAB 7.3 file that can be read: {printable(str(error))}") from error


class _Hdf5Reader:
    """Counts what it reads: a data set may be declared in any size without a byte of it in the file, and one cell may
    name the same data set many times."""

    def __init__(self, path: Path, file: Any, h5py: Any) -> None:
        self.path, self.file, self.h5py, self.count = path, file, h5py, MemoryCount(path)

    def variable(self, name: str) -> Any:
        if not isinstance(self.file.get(name, getlink=True), self.h5py.HardLink):
            raise DataError(f"{self.path}: {printable(name)}: a link, which MATLAB does not write")
        return self.value(name, self.file[name], 0)

    def value(self, name: str, node: Any, level: int) -> Any:
        """A data set as scipy would give it: MATLAB stores arrays with their axes reversed."""
        self.count.check_level(level)
        is_cells = self.h5py.check_ref_dtype(node.dtype) is self.h5py.Reference
        if node.external or node.is_virtual or (node.dtype.hasobject and not is_cells):
            what = "values of variable length" if node.dtype.hasobject else "values in other files"
            raise DataError(f"{self.path}: {printable(name)}: {what}, which MATLAB does not write")
        # A chunk is read as a whole, and may be larger than the data set.
        numbers = max(int(node.size), math.prod(node.chunks or ()))
        self.count.take(max(NODE, numbers * (NODE if is_cells else node.dtype.itemsize)))
        kind = bytes(node.attrs.get("MATLAB_class", b"")).decode()
        if node.attrs.get("MATLAB_empty", 0):
            return np.asarray([], dtype=object)
        stored = node[()]
        if kind == "cell":
            cells = np.empty(stored.T.shape, dtype=object)
            for place, reference in np.ndenumerate(stored.T):
                cells[place] = self.value(name, self.file[reference], level + 1)
            return cells
        if kind == "char":
            # MATLAB's characters are UTF-16: an emoji is two of them.
            rows = np.atleast_2d(stored.T).astype("<u2")
            return np.array([row.tobytes().decode("utf-16-le", errors="replace") for row in rows])
        return stored.T
