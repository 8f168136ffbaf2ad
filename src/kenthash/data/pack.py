"""The feature pack: a folder with the vectors of a data set, its labels and texts. Read, checked and written here.

    meta.json           name, classes, encoders (a line about each tower) and licence; a pack that `kenthash encode`
                        wrote has also `encoder` (what `load_encoder` takes), `encoder_weights` (the digest of its
                        weights), `pictures` (the version of the picture pipeline), `fingerprint` (of items and encoder)
                        and `skipped` (id and reason of the items that could not be encoded)
    ids.txt             one id per line
    image.npy           [N, Di], float16 or float32: one row per item
    text.npy            [M, Dt], float16 or float32: one row per text
    text_offsets.npy    int64 [N + 1]: item i owns the text rows offsets[i] to offsets[i + 1]; none where it has no text
    labels.npy          uint8 [N, C], 0 or 1; C may be 0
    texts.jsonl         optional: one JSON string per text row

Arrays are memory-mapped: a pack may be larger than memory.
"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.data.dataset import Dataset
from kenthash.errors import DataError
from kenthash.files import atomic_write, load_array, parse_json, read_json, reading, sync_folder, write_json

Vectors = NDArray[np.float16] | NDArray[np.float32]

PARTS = ("ids.txt", "labels.npy", "image.npy", "text.npy")


@dataclass(frozen=True)
class FeaturePack:
    path: Path
    dataset: Dataset  # pictures is None
    image: Vectors  # [N, Di]
    text: Vectors  # [M, Dt]
    text_offsets: NDArray[np.int64]  # [N + 1]
    encoders: dict[str, str]
    encoder: str = ""  # what `load_encoder` takes for new pictures and texts; "" where that is not known
    encoder_weights: str = ""  # `Encoder.weights` of what made the vectors; "" where that is not known
    version: str = ""  # of the picture pipeline that made them (`pictures` in meta.json); "" where that is not known

    @classmethod
    def open(cls, path: Path) -> "FeaturePack":
        """Open and check a pack; a part that is missing, damaged or disagrees with the others is named."""
        dataset = read_pack(path)
        image, text, offsets = (load_array(path / f"{part}.npy") for part in ("image", "text", "text_offsets"))
        for part, vectors in (("image.npy", image), ("text.npy", text)):
            if vectors.ndim != 2 or vectors.dtype not in (np.float16, np.float32):
                raise DataError(
                    f"{path / part}: must be float16 or float32 with two dimensions, is {vectors.dtype} {vectors.shape}"
                )
        n = len(dataset)
        if len(image) != n:
            raise DataError(f"{path / 'image.npy'}: {len(image)} rows, but ids.txt has {n}")
        _check_offsets(path / "text_offsets.npy", offsets, n, len(text), "text.npy")
        meta = read_json(path / "meta.json")
        towers = meta.get("encoders") or {}
        if not isinstance(towers, dict):
            raise DataError(f"{path / 'meta.json'}: 'encoders' must be an object with a line about each tower")
        encoder_fields = [str(meta.get(name) or "") for name in ("encoder", "encoder_weights", "pictures")]
        return cls(path, dataset, image, text, np.asarray(offsets), towers, *encoder_fields)

    def __len__(self) -> int:
        return len(self.dataset)


def is_pack(path: Path) -> bool:
    """Whether a folder means to be a feature pack, be it whole or not."""
    return (path / "meta.json").is_file() and any((path / part).is_file() for part in PARTS)


def read_pack(path: Path) -> Dataset:
    """Read and check everything but the vectors; a part that is missing, damaged or disagrees with the others is
    named."""
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


def bad_rows(pack: FeaturePack) -> dict[str, list[int]]:
    """Rows of image.npy and of text.npy that hold NaN or infinity, which spread from one item to a whole batch."""
    return {"image.npy": _not_finite(pack.image), "text.npy": _not_finite(pack.text)}


def refuse_bad_rows(pack: FeaturePack) -> None:
    for part, rows in bad_rows(pack).items():
        if rows:
            raise DataError(f"{pack.path / part}: row {rows[0]} holds NaN or infinity: encode that item again")


def write_pack(
    out: Path,
    work: Path,
    dataset: Dataset,
    image: Iterable[NDArray[np.float16]],
    text: Iterable[NDArray[np.float16]],
    meta: dict[str, Any],
) -> None:
    """Write a data set and its vectors as the pack `out`, which appears whole: it is made in the folder `work`, then
    renamed.

    `image` and `text` are blocks of vectors, in order, which together have one row per item and one per text: they need
    not be in memory all at once. `meta` is added to what meta.json says of the data set.
    """
    assert dataset.texts is not None
    texts = dataset.texts
    shutil.rmtree(work, ignore_errors=True)  # of a process that was killed while writing
    work.mkdir(parents=True)
    _write_vectors(work / "image.npy", image, len(dataset))
    _write_vectors(work / "text.npy", text, sum(map(len, texts)))
    _write_array(work / "text_offsets.npy", np.cumsum([0, *map(len, texts)], dtype=np.int64))
    _write_array(work / "labels.npy", dataset.labels)
    _write_lines(work / "ids.txt", dataset.ids)
    _write_lines(work / "texts.jsonl", (json.dumps(line, ensure_ascii=False) for lines in texts for line in lines))
    about = {"name": dataset.name, "classes": dataset.classes, "licence": dataset.licence}
    write_json(work / "meta.json", about | meta)
    work.rename(out)
    sync_folder(out.parent)


def _check_offsets(path: Path, offsets: NDArray[Any], items: int, rows: int, owner: str) -> None:
    """Refuse text offsets that do not share out the `rows` that the file `owner` has among the items, in order."""
    if offsets.shape != (items + 1,) or offsets.dtype != np.int64:
        raise DataError(f"{path}: must be int64 [{items + 1}], is {offsets.dtype} {offsets.shape}")
    if offsets[0] != 0 or offsets[-1] != rows or (np.diff(offsets) < 0).any():
        raise DataError(f"{path}: must rise from 0 to the {rows} rows of {owner}")


def _texts(path: Path, items: int) -> list[list[str]]:
    rows: list[str] = []
    text = _text(path / "texts.jsonl").removesuffix("\n")
    for number, line in enumerate(text.split("\n") if text else [], start=1):
        try:
            row = parse_json(line)
        except ValueError as error:
            raise DataError(f"{path / 'texts.jsonl'}:{number}: must be a JSON string") from error
        if not isinstance(row, str):
            raise DataError(f"{path / 'texts.jsonl'}:{number}: must be a JSON string")
        rows.append(row)
    offsets = load_array(path / "text_offsets.npy")
    _check_offsets(path / "text_offsets.npy", offsets, items, len(rows), "texts.jsonl")
    return [rows[start:end] for start, end in pairwise(offsets.tolist())]


def _text(path: Path) -> str:
    with reading(path):
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")


def _not_finite(vectors: Vectors, block: int = 8192) -> list[int]:
    """In blocks, since a pack may be larger than memory."""
    rows: list[int] = []
    for start in range(0, len(vectors), block):
        finite = np.isfinite(vectors[start : start + block]).all(axis=1)
        rows += (start + np.flatnonzero(~finite)).tolist()
    return rows


def _write_vectors(path: Path, blocks: Iterable[NDArray[np.float16]], rows: int) -> None:
    """An .npy file of float16, written block by block."""
    iterator = iter(blocks)
    first = next(iterator)
    with atomic_write(path) as stream:
        header = {"descr": "<f2", "fortran_order": False, "shape": (rows, first.shape[1])}
        np.lib.format.write_array_header_1_0(stream, header)
        for block in chain([first], iterator):
            stream.write(np.ascontiguousarray(block, "<f2").tobytes())


def _write_array(path: Path, array: NDArray[Any]) -> None:
    with atomic_write(path) as stream:
        np.save(stream, array, allow_pickle=False)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with atomic_write(path, "w") as stream:
        stream.writelines(f"{line}\n" for line in lines)
