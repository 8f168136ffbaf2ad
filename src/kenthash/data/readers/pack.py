"""The table of a feature pack: everything but its vectors, which `kenthash.encoders.features` opens.

`meta.json` (name, classes, encoders, licence), `ids.txt` (an id a line), `labels.npy` uint8 [N, C] and optionally
`texts.jsonl` (a JSON string a text row) with `text_offsets.npy` int64 [N+1]: item i owns rows offsets[i] to
offsets[i+1].
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.data.dataset import Dataset
from kenthash.errors import DataError
from kenthash.files import load_array, parse_json, read_json, reading

PARTS = ("ids.txt", "labels.npy", "image.npy", "text.npy")


def is_pack(path: Path) -> bool:
    """Whether a folder means to be a feature pack, be it whole or not."""
    return (path / "meta.json").is_file() and any((path / part).is_file() for part in PARTS)


def read_pack(path: Path) -> Dataset:
    """Read and check the table of a pack; a part that is missing, damaged or disagrees with the others is named."""
    meta = read_json(path / "meta.json")
    if not isinstance(meta, dict):
        raise DataError(f"{path / 'meta.json'}: must be a JSON object with name, classes, encoders and licence")
    classes = meta.get("classes")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise DataError(f"{path / 'meta.json'}: 'classes' must be a list of class names")
    ids = _text(path / "ids.txt").removesuffix("\n").split("\n")
    if "" in ids:
        raise DataError(f"{path / 'ids.txt'}: line {ids.index('') + 1} is empty")
    labels = load_array(path / "labels.npy")
    if labels.dtype != np.uint8 or labels.ndim != 2:
        raise DataError(f"{path / 'labels.npy'}: must be uint8 [items, classes], is {labels.dtype} {labels.shape}")
    if len(labels) != len(ids):
        raise DataError(f"{path / 'labels.npy'}: {len(labels)} rows, but ids.txt has {len(ids)}")
    if labels.shape[1] != len(classes):
        raise DataError(f"{path / 'labels.npy'}: {labels.shape[1]} columns, but meta.json has {len(classes)} classes")
    if labels.max(initial=0) > 1:
        raise DataError(f"{path / 'labels.npy'}: must be 0 or 1, found {labels.max()}")
    return Dataset(
        name=str(meta.get("name") or path.resolve().name),
        ids=ids,
        labels=np.array(labels),
        classes=classes,
        texts=_texts(path, len(ids)) if (path / "texts.jsonl").is_file() else None,
        licence=str(meta.get("licence") or ""),
    )


def check_offsets(path: Path, offsets: NDArray[Any], items: int, rows: int, owner: str) -> None:
    """Refuse text offsets that do not give every item one or more of the `rows` that the file `owner` has."""
    if offsets.shape != (items + 1,) or offsets.dtype != np.int64:
        raise DataError(f"{path}: must be int64 [{items + 1}], is {offsets.dtype} {offsets.shape}")
    if offsets[0] != 0 or offsets[-1] != rows or (np.diff(offsets) < 1).any():
        raise DataError(f"{path}: must rise from 0 to the {rows} rows of {owner}, one or more an item")


def _texts(path: Path, items: int) -> list[list[str]]:
    rows: list[str] = []
    for number, line in enumerate(_text(path / "texts.jsonl").removesuffix("\n").split("\n"), start=1):
        try:
            row = parse_json(line)
        except ValueError as error:
            raise DataError(f"{path / 'texts.jsonl'}:{number}: must be a JSON string") from error
        if not isinstance(row, str):
            raise DataError(f"{path / 'texts.jsonl'}:{number}: must be a JSON string")
        rows.append(row)
    offsets = load_array(path / "text_offsets.npy")
    check_offsets(path / "text_offsets.npy", offsets, items, len(rows), "texts.jsonl")
    bounds = offsets.tolist()
    return [rows[start:end] for start, end in pairwise(bounds)]


def _text(path: Path) -> str:
    with reading(path):
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
