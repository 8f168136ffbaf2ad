"""Numbers and strings out of MATLAB files.

Versions 4 to 7 are read by scipy. Version 7.3 is HDF5 and needs h5py. A string array comes in many shapes: a padded
character matrix, a cell of strings, a cell of cells; `read_strings` makes one list of strings a row of each.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray

from kenthash.errors import DataError


def read_numbers(path: Path, names: tuple[str, ...]) -> NDArray[Any]:
    value = _read_variable(path, names)
    numbers = value.toarray() if hasattr(value, "toarray") else np.asarray(value)
    if numbers.dtype.kind not in "biuf":
        raise DataError(f"{path}: holds {numbers.dtype}, not numbers")
    return numbers


def read_strings(path: Path, names: tuple[str, ...], rows: int) -> list[list[str]]:
    """One list of strings for each of `rows` items, padding stripped and empty strings left out."""
    value = np.asarray(_read_variable(path, names))
    if value.dtype.kind not in "UO":
        raise DataError(f"{path}: holds {value.dtype}, not strings")
    table = value.squeeze()
    if table.ndim > 1 and table.shape[0] != rows and table.shape[-1] == rows:
        table = np.moveaxis(table, -1, 0)
    if rows == 0 or table.size % rows or table.size == 0:
        raise DataError(f"{path}: {table.size} strings do not go to {rows} items")
    return [[text for cell in row for text in _flatten(cell) if text] for row in table.reshape(rows, -1)]


def _flatten(cell: Any) -> Iterator[str]:
    if isinstance(cell, str):
        yield cell.strip()
    else:
        for inner in np.asarray(cell).ravel():
            # An empty string in a cell is an empty array; a string that stands alone is an array of one.
            yield from _flatten(inner if isinstance(inner, (str, np.ndarray)) else str(inner))


def _read_variable(path: Path, names: tuple[str, ...]) -> Any:
    try:
        variables = scipy.io.loadmat(path)
    except NotImplementedError:
        variables = _read_hdf5(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a damaged file raises anything: ValueError, TypeError, zlib.error, MatReadError
        raise DataError(f"{path}: not a MATLAB file that can be read: {error}") from error
    found = {name: value for name, value in variables.items() if not name.startswith(("_", "#"))}
    for name in names:
        if name in found:
            return found[name]
    if len(found) == 1:
        return next(iter(found.values()))
    raise DataError(f"{path}: no variable {' or '.join(names)}, only {', '.join(sorted(found)) or 'nothing'}")


def _read_hdf5(path: Path) -> dict[str, Any]:
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise DataError(
            f"{path}: MATLAB 7.3 format needs h5py: pip install h5py, or save it again with save -v7 in MATLAB"
        ) from error
    try:
        with h5py.File(path, "r") as file:
            return {name: _hdf5_value(file, file[name]) for name in file if not name.startswith("#")}
    except Exception as error:
        raise DataError(f"{path}: not a MATLAB 7.3 file that can be read: {error}") from error


def _hdf5_value(file: Any, node: Any) -> Any:
    """A dataset as scipy would give it: MATLAB stores arrays with their axes reversed."""
    kind = bytes(node.attrs.get("MATLAB_class", b"")).decode()
    if node.attrs.get("MATLAB_empty", 0):
        return np.asarray([], dtype=object)
    stored = node[()]
    if kind == "cell":
        cells = np.empty(stored.T.shape, dtype=object)
        for place, reference in np.ndenumerate(stored.T):
            cells[place] = _hdf5_value(file, file[reference])
        return cells
    if kind == "char":
        # MATLAB's characters are UTF-16: an emoji is two of them.
        rows = np.atleast_2d(stored.T).astype("<u2")
        return np.array([row.tobytes().decode("utf-16-le", errors="replace") for row in rows])
    return stored.T
