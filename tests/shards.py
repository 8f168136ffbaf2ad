"""Shards for tests, written by the standard library and pyarrow."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def jpeg(seed: int, size: tuple[int, int] = (48, 40)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).resize(size).save(stream, "JPEG")
    return stream.getvalue()


def write_tar(path: Path, files: Mapping[str, bytes], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path
