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
from kenthash.data.readers.pack import read_pack
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

    @classmethod
    def open(cls, path: Path) -> "FeaturePack":
        """Open and check a pack; a part that is missing, damaged or disagrees with the others is named."""
        dataset = read_pack(path)
        image, text, offsets = (load_array(path / f"{part}.npy") for part in ("image", "text", "text_offsets"))
        for part, vectors in (("image.npy", image), ("text.npy", text)):
            if vectors.ndim != 2 or vectors.dtype not in (np.float16, np.float32):
                raise DataError(f"{path / part}: must be float16 or float32 with two dimensions, is {vectors.dtype} {vectors.shape}")
        n = len(dataset)
        if len(image) != n:
            raise DataError(f"{path / 'image.npy'}: {len(image)} rows, but ids.txt has {n}")
        if offsets.shape != (n + 1,) or offsets.dtype != np.int64:
            raise DataError(f"{path / 'text_offsets.npy'}: must be int64 [{n + 1}], is {offsets.dtype} {offsets.shape}")
        if offsets[0] != 0 or offsets[-1] != len(text) or (np.diff(offsets) < 1).any():
            raise DataError(f"{path / 'text_offsets.npy'}: must rise from 0 to the {len(text)} rows of text.npy, one or more an item")
        return cls(path, dataset, image, text, np.asarray(offsets), read_json(path / "meta.json").get("encoders", {}))

    def __len__(self) -> int:
        return len(self.dataset)

