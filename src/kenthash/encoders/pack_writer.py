"""From finished shards to a feature pack that appears whole, by one rename."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.data.dataset import Dataset
from kenthash.data.pictures import PIPELINE
from kenthash.encoders.fingerprint import picture_items
from kenthash.encoders.shards import discard, load_shard
from kenthash.encoders.stream import VectorEncoder
from kenthash.errors import DataError
from kenthash.files import atomic_write, sync_folder, write_json


def write_pack(
    dataset: Dataset, encoder: VectorEncoder, fingerprint: str, shards: list[Path], work: Path, out: Path
) -> dict[int, str]:
    """Join the shards to a pack in the folder `work`, then rename that to `out`. Returns the skipped rows."""
    _, texts = picture_items(dataset)
    kept: list[int] = []
    skipped: dict[int, str] = {}
    for shard in map(load_shard, shards):
        kept += shard.rows.tolist()
        skipped |= shard.skipped
    if not kept:
        for file in shards:  # whoever mends the pictures, or installs what decodes them, will try again
            file.unlink()
        example = next(iter(skipped.values()))
        raise DataError(f"{dataset.name}: none of its {len(dataset)} items could be encoded; the first: {example}")
    offsets = np.cumsum([0] + [len(texts[row]) for row in kept], dtype=np.int64)

    discard(work)  # of a process that was killed while joining
    work.mkdir(parents=True)
    _write_rows(work / "image.npy", (len(kept), encoder.image_dim), (s.image for s in map(load_shard, shards)))
    _write_rows(work / "text.npy", (int(offsets[-1]), encoder.text_dim), (s.text for s in map(load_shard, shards)))
    _write_array(work / "text_offsets.npy", offsets)
    _write_array(work / "labels.npy", dataset.labels[kept])
    _write_lines(work / "ids.txt", (dataset.ids[row] for row in kept))
    _write_lines(work / "texts.jsonl", (json.dumps(text, ensure_ascii=False) for row in kept for text in texts[row]))
    write_json(work / "meta.json", _meta(dataset, encoder, fingerprint, skipped))
    work.rename(out)
    sync_folder(out.parent)
    return skipped


def _meta(dataset: Dataset, encoder: VectorEncoder, fingerprint: str, skipped: dict[int, str]) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "classes": dataset.classes,
        "encoders": encoder.towers,
        "encoder": encoder.spec,
        "encoder_weights": encoder.weights,
        "licence": dataset.licence,
        "fingerprint": fingerprint,
        "pictures": PIPELINE,
        "skipped": [{"id": dataset.ids[row], "reason": reason} for row, reason in skipped.items()],
    }


def _write_rows(path: Path, shape: tuple[int, int], blocks: Iterator[NDArray[np.float16]]) -> None:
    """An .npy file written block by block: a pack may be larger than memory."""
    with atomic_write(path) as stream:
        header = {"descr": "<f2", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for block in blocks:
            stream.write(np.ascontiguousarray(block, "<f2").tobytes())


def _write_array(path: Path, array: NDArray[Any]) -> None:
    with atomic_write(path) as stream:
        np.save(stream, array, allow_pickle=False)


def _write_lines(path: Path, lines: Iterator[str]) -> None:
    with atomic_write(path, "w") as stream:
        stream.writelines(f"{line}\n" for line in lines)
