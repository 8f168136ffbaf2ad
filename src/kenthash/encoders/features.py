"""The feature pack: a folder of vectors that needs no network to be read.

`meta.json` (name, classes, encoders, licence), `ids.txt`, `image.npy` [N, Di], `text.npy` [M, Dt],
`text_offsets.npy` int64 [N+1] (item i owns text rows offsets[i] to offsets[i+1]), `labels.npy` uint8 [N, C] and
optionally `texts.jsonl` (row -> string). Vectors are float16 or float32 and memory-mapped.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.data.dataset import Dataset
from kenthash.data.readers.pack import check_offsets, read_pack
from kenthash.errors import DataError
from kenthash.files import load_array, read_json

Vectors = NDArray[np.float16] | NDArray[np.float32]


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
        check_offsets(path / "text_offsets.npy", offsets, n, len(text), "text.npy")
        meta = read_json(path / "meta.json")
        made = [str(meta.get(name) or "") for name in ("encoder", "encoder_weights", "pictures")]
        return cls(path, dataset, image, text, np.asarray(offsets), meta.get("encoders") or {}, *made)

    def __len__(self) -> int:
        return len(self.dataset)


def bad_rows(pack: FeaturePack) -> dict[str, list[int]]:
    """Rows of image.npy and of text.npy that hold NaN or infinity, which spread from one item to a whole batch."""
    return {"image.npy": _not_finite(pack.image), "text.npy": _not_finite(pack.text)}


def _not_finite(vectors: Vectors, block: int = 8192) -> list[int]:
    """In blocks, since a pack may be larger than memory."""
    rows: list[int] = []
    for start in range(0, len(vectors), block):
        finite = np.isfinite(vectors[start : start + block]).all(axis=1)
        rows += (start + np.flatnonzero(~finite)).tolist()
    return rows
