"""`kenthash bench encode`: whether the encoder is kept busy while pictures are read and decoded.

The bare forward pass on pixels in memory is compared with the whole pipeline from picture files to a feature pack, on
the same pictures with one text each. Runs alternate and the fastest of each counts, so that other load on the machine
affects the result little.
"""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from kenthash.data.dataset import Dataset
from kenthash.data.decoding import DecoderPool
from kenthash.data.pictures import SUFFIXES, to_square
from kenthash.encoders import vector_encoder
from kenthash.encoders.pipeline import encode_dataset
from kenthash.encoders.stream import BATCH, Batch, VectorEncoder, encode_stream
from kenthash.errors import DataError
from kenthash.progress import cores

BAR = 0.9
WORDS = ("a", "the", "two", "some", "red", "small", "dog", "kite", "street", "beach", "man", "holding", "near", "with")


def bench_encode(
    pictures: Path | None = None, encoder: str = "light", items: int = 512, runs: int = 3, device: str = "cpu"
) -> dict[str, float]:
    """Items per second, and the ratios of the pipeline to the bare forward pass."""
    loaded = vector_encoder(encoder, device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = find_pictures(pictures, items) if pictures else make_photos(folder, items)
        texts = _make_texts(len(files))
        return _measure(loaded, files, texts, folder, runs)


def _measure(encoder: VectorEncoder, files: list[Path], texts: list[str], folder: Path, runs: int) -> dict[str, float]:
    starts = range(0, len(files), BATCH)
    # The bare pass gets what suits it best: on a CPU small batches on every core, and texts sorted by length.
    size, length = (encoder.picture_chunk, encoder.text_chunk) if encoder.on_cpu else (BATCH, BATCH)
    squares = [to_square(file, encoder.square()) for file in files]
    pixels = [squares[at : at + size] for at in range(0, len(files), size)]
    by_length = sorted(texts, key=len)
    words = [by_length[at : at + length] for at in range(0, len(texts), length)]
    pool = ThreadPoolExecutor(cores() if encoder.on_cpu else 1)
    ids = [str(row) for row in range(len(files))]
    labels = np.zeros((len(files), 1), np.uint8)
    dataset = Dataset("bench", ids, labels, ["none"], pictures=files, texts=[[text] for text in texts])

    def bare_pictures() -> None:
        list(pool.map(encoder.picture_vectors, pixels))

    def bare_texts() -> None:
        list(pool.map(encoder.text_vectors, words))

    def stream() -> None:
        batches = [Batch(files[at : at + BATCH], []) for at in starts]
        with DecoderPool() as decoders:
            for _ in encode_stream(encoder, batches, decoders.square):
                pass

    def pipeline() -> None:
        encode_dataset(dataset, encoder, Path(tempfile.mkdtemp(dir=folder)) / "pack")

    contestants: tuple[Callable[[], None], ...] = (bare_pictures, bare_texts, stream, pipeline)
    fastest = [float("inf")] * len(contestants)
    bare_pictures()  # warm up: the first forward pass prepares the kernels
    for _ in range(runs):
        for which, run in enumerate(contestants):
            began = time.perf_counter()
            run()
            fastest[which] = min(fastest[which], time.perf_counter() - began)
    image, text, streamed, piped = (seconds / len(files) for seconds in fastest)
    return {
        "bare forward pass, pictures/s": 1 / image,
        "bare forward pass, texts/s": 1 / text,
        "bare forward pass, items/s": 1 / (image + text),
        "from picture files, pictures/s": 1 / streamed,
        "from picture files to a pack with texts, items/s": 1 / piped,
        f"pictures: files / bare (bar: {BAR})": image / streamed,
        f"items: files to a pack / bare (bar: {BAR})": (image + text) / piped,
    }


def find_pictures(folder: Path, items: int) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)[:items]
    if not files:
        raise DataError(f"{folder}: no pictures below this folder: give one that has some")
    return files


def make_photos(folder: Path, items: int) -> list[Path]:
    """JPEG files of 640x480 with large shapes and fine grain, so that they decode about as slowly as real photos."""
    rng = np.random.default_rng(0)
    files = [folder / f"{number}.jpg" for number in range(items)]
    for file in files:
        shapes = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((640, 480))
        grain = rng.integers(-8, 9, (480, 640, 1), np.int16)
        Image.fromarray((np.asarray(shapes, np.int16) + grain).clip(0, 255).astype(np.uint8)).save(file, quality=90)
    return files


def _make_texts(items: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(6, 16))) for _ in range(items)]
