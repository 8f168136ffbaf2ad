"""A small feature pack that can be learned: each class has a direction in both towers, an item is the sum of its
classes' directions and noise."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def write_pack(path: Path, items: int = 400, classes: int = 12, seed: int = 0, noise: float = 0.5) -> Path:
    rng = np.random.default_rng(seed)
    labels = (rng.random((items, classes)) < 0.08).astype(np.uint8)
    labels[np.arange(items), rng.integers(classes, size=items)] = 1
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 3, size=items))]).astype(np.int64)
    owner = np.repeat(np.arange(items), np.diff(offsets))
    towers = {"image": (32, labels), "text": (24, labels[owner])}
    path.mkdir(parents=True)
    for name, (dim, rows) in towers.items():
        directions = rng.standard_normal((classes, dim))
        vectors = rows @ directions + noise * rng.standard_normal((len(rows), dim))
        np.save(path / f"{name}.npy", vectors.astype(np.float32))
    np.save(path / "text_offsets.npy", offsets)
    np.save(path / "labels.npy", labels)
    (path / "ids.txt").write_text("".join(f"item{i}\n" for i in range(items)))
    meta = {"name": "tiny", "classes": [f"class {c}" for c in range(classes)], "encoders": {}, "licence": ""}
    (path / "meta.json").write_text(json.dumps(meta))
    return path


def remove_captions(pack: Path, items: NDArray[np.int64]) -> None:
    text, offsets = np.load(pack / "text.npy"), np.load(pack / "text_offsets.npy")
    numbers = np.diff(offsets)
    np.save(pack / "text.npy", text[~np.isin(np.repeat(np.arange(len(numbers)), numbers), items)])
    numbers[items] = 0
    np.save(pack / "text_offsets.npy", np.concatenate([[0], np.cumsum(numbers)]))
