"""`kenthash bench encode`: whether the encoder is kept busy while pictures are read and decoded, and whether its ONNX
graphs are as fast as PyTorch and give the same bits.

The bare forward pass on pixels in memory is compared with the whole pipeline from picture files to a feature pack, on
the same pictures with one text each, and with `index add` of a folder of them where a pretrained model has this
encoder. Runs alternate and the fastest of each counts, so that other load on the machine affects the result little.
"""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from kenthash.api import index_folder
from kenthash.data.dataset import Dataset
from kenthash.data.decoding import DecoderPool
from kenthash.data.pictures import SUFFIXES, Pixels, to_square
from kenthash.encoders import load_encoder, vector_encoder
from kenthash.encoders.pipeline import encode_dataset
from kenthash.encoders.stream import BATCH, EncodeBatch, VectorEncoder, Vectors, encode_stream
from kenthash.errors import DataError
from kenthash.model.pretrained import pretrained_folders
from kenthash.progress import cores

BAR = 0.9
BITS = 1024  # of the codes that are compared
Item = TypeVar("Item", Pixels, str)
WORDS = ("a", "the", "two", "some", "red", "small", "dog", "kite", "street", "beach", "man", "holding", "near", "with")


def bench_encode(
    pictures: Path | None = None, encoder: str = "light", items: int = 512, runs: int = 3, device: str = "cpu"
) -> dict[str, float]:
    """Items per second, and the ratios of the pipeline to the bare forward pass, by ONNX graphs and by PyTorch."""
    used = vector_encoder(encoder, device)
    network = used if encoder == "clip" else load_encoder(encoder, device)  # of `clip` there are only graphs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = find_pictures(pictures, items) if pictures else make_photos(folder, items)
        texts = _make_texts(len(files))
        return _measure(network, used, files, texts, folder, runs, device)


def _measure(
    network: VectorEncoder,
    used: VectorEncoder,
    files: list[Path],
    texts: list[str],
    folder: Path,
    runs: int,
    device: str,
) -> dict[str, float]:
    squares = [to_square(file, network.square()) for file in files]
    ids = [str(row) for row in range(len(files))]
    labels = np.zeros((len(files), 1), np.uint8)
    dataset = Dataset("bench", ids, labels, ["none"], pictures=files, texts=[[text] for text in texts])

    def stream() -> None:
        batches = [EncodeBatch(files[at : at + BATCH], []) for at in range(0, len(files), BATCH)]
        with DecoderPool() as decoders:
            for _ in encode_stream(used, batches, decoders.square_with_facts):
                pass

    def pipeline() -> None:
        encode_dataset(dataset, used, Path(tempfile.mkdtemp(dir=folder)) / "pack")

    photos = folder / "photos"
    photos.mkdir()
    for row, file in enumerate(files):
        (photos / f"{row}{file.suffix}").symlink_to(file.absolute())

    def index_add() -> None:
        index_folder(photos, Path(tempfile.mkdtemp(dir=folder)) / "bench.kh", used.spec, device=device)

    contestants: dict[str, Callable[[], object]] = {
        "pictures": lambda: _bare_pictures(used, squares),
        "texts": lambda: _bare_texts(used, texts),
        "stream": stream,
        "pack": pipeline,
    }
    if used.spec in pretrained_folders():
        contestants["index add"] = index_add
    if used is not network:  # on a CPU, where there is a network in PyTorch
        contestants["PyTorch, pictures"] = lambda: _bare_pictures(network, squares)
        contestants["PyTorch, texts"] = lambda: _bare_texts(network, texts)
    fastest = dict.fromkeys(contestants, float("inf"))
    _bare_pictures(used, squares)  # warm up: the first forward pass prepares the kernels
    for _ in range(runs):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            fastest[name] = min(fastest[name], (time.perf_counter() - began) / len(files))
    bare = fastest["pictures"] + fastest["texts"]
    figures = {
        "bare forward pass, pictures/s": 1 / fastest["pictures"],
        "bare forward pass, texts/s": 1 / fastest["texts"],
        "bare forward pass, items/s": 1 / bare,
        "from picture files, pictures/s": 1 / fastest["stream"],
        "from picture files to a pack with texts, items/s": 1 / fastest["pack"],
        f"pictures: files / bare (bar: {BAR})": fastest["pictures"] / fastest["stream"],
        f"items: files to a pack / bare (bar: {BAR})": bare / fastest["pack"],
    }
    if "index add" in fastest:
        figures["index add, pictures/s"] = 1 / fastest["index add"]
        figures[f"index add / bare (bar: {BAR})"] = fastest["pictures"] / fastest["index add"]
    if used is network:
        return figures
    pytorch = fastest["PyTorch, pictures"] + fastest["PyTorch, texts"]
    return figures | {
        "PyTorch in batches, pictures/s": 1 / fastest["PyTorch, pictures"],
        "PyTorch in batches, texts/s": 1 / fastest["PyTorch, texts"],
        f"items: files to a pack / PyTorch in batches (bar: {BAR})": pytorch / fastest["pack"],
        "bits equal to PyTorch's, pictures (bar: 0.999)": _equal_bits(
            _bare_pictures(used, squares), _bare_pictures(network, squares)
        ),
        "bits equal to PyTorch's, texts (bar: 0.999)": _equal_bits(
            _bare_texts(used, texts), _bare_texts(network, texts)
        ),
    }


def _bare_pictures(encoder: VectorEncoder, squares: list[Pixels]) -> Vectors:
    size = encoder.picture_chunk if encoder.on_cpu else BATCH
    return _in_threads(
        encoder, encoder.picture_vectors, [squares[at : at + size] for at in range(0, len(squares), size)]
    )


def _bare_texts(encoder: VectorEncoder, texts: list[str]) -> Vectors:
    """Texts of like length together, which suits batches best."""
    size = encoder.text_chunk if encoder.on_cpu else BATCH
    by_length = sorted(texts, key=len)
    return _in_threads(encoder, encoder.text_vectors, [by_length[at : at + size] for at in range(0, len(texts), size)])


def _in_threads(encoder: VectorEncoder, encode: Callable[[list[Item]], Vectors], chunks: list[list[Item]]) -> Vectors:
    """What suits a CPU best: small batches on every core."""
    with encoder.one_thread(), ThreadPoolExecutor(cores() if encoder.on_cpu else 1) as pool:
        return np.concatenate(list(pool.map(encode, chunks)))


def _equal_bits(vectors: Vectors, expected: Vectors) -> float:
    """The share of equal bits of codes by random hyperplanes through the mean, BITS for each item."""
    planes = np.random.default_rng(0).standard_normal((expected.shape[1], BITS)).astype(np.float32)
    centre = expected.mean(axis=0)
    return float((((vectors - centre) @ planes >= 0) == ((expected - centre) @ planes >= 0)).mean())


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
