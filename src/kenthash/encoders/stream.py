"""A stream of pictures and texts through an encoder, with all cores busy and memory bounded.

On a CPU every worker thread takes a few pictures, decodes them and runs them through the network on its one core. No
core waits for another (as the threads inside one forward pass do at every layer), decoding fills no queue that the
network must empty, and a result does not depend on the number of cores. On a GPU the workers decode larger chunks and
take turns at the network.
"""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kenthash.cores import cores
from kenthash.data.pictures import BadPicture, open_picture
from kenthash.encoders.base import Encoder
from kenthash.encoders.transforms import to_batch

AHEAD = 2  # batches that are worked on while one is handed over

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Batch:
    pictures: list[Path]
    texts: list[str]


@dataclass(frozen=True)
class Encoded:
    image: Vectors  # [P, Di], zeros where the picture is bad
    bad: dict[int, str]  # which pictures of the batch could not be used, and why
    text: Vectors  # [T, Dt]


def encode_stream(encoder: Encoder, batches: Iterable[Batch]) -> Generator[Encoded]:
    """Encode batches in order, a few of them at a time."""
    on_cpu = encoder.device.type == "cpu"
    threads = torch.get_num_threads()
    workers = threads if on_cpu else min(16, cores())
    turn: AbstractContextManager[object] = nullcontext() if on_cpu else Lock()
    pool = ThreadPoolExecutor(workers, "encode", initializer=torch.set_num_threads, initargs=(1,))
    waiting: deque[_Pending] = deque()
    try:
        for batch in batches:
            waiting.append(_Pending(encoder, batch, pool, turn))
            if len(waiting) > AHEAD:
                yield waiting.popleft().gather()
        while waiting:
            yield waiting.popleft().gather()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # a worker's setting is also the default of threads that start later


class _Pending:
    """The chunks of a batch, on their way."""

    def __init__(
        self, encoder: Encoder, batch: Batch, pool: ThreadPoolExecutor, turn: AbstractContextManager[object]
    ) -> None:
        self.encoder, self.batch = encoder, batch
        on_cpu = encoder.device.type == "cpu"
        self.pictures: list[tuple[list[int], Future[tuple[Vectors, dict[int, str]]]]] = []
        size = encoder.picture_chunk if on_cpu else max(1, len(batch.pictures))
        for rows in _chunks(range(len(batch.pictures)), size):
            paths = [batch.pictures[row] for row in rows]
            self.pictures.append((rows, pool.submit(_encode_pictures, encoder, paths, turn)))
        self.texts: list[tuple[list[int], Future[Vectors]]] = []
        # Texts of like length together: the shorter ones of a chunk are padded to the longest.
        by_length = sorted(range(len(batch.texts)), key=lambda row: len(batch.texts[row]))
        for rows in _chunks(by_length, encoder.text_chunk if on_cpu else 8 * encoder.text_chunk):
            texts = [batch.texts[row] for row in rows]
            self.texts.append((rows, pool.submit(_encode_texts, encoder, texts, turn)))

    def gather(self) -> Encoded:
        image = np.zeros((len(self.batch.pictures), self.encoder.image_dim), np.float32)
        text = np.zeros((len(self.batch.texts), self.encoder.text_dim), np.float32)
        bad: dict[int, str] = {}
        for rows, pictures in self.pictures:
            image[rows], reasons = pictures.result()
            bad |= {rows[place]: reason for place, reason in reasons.items()}
        for rows, texts in self.texts:
            text[rows] = texts.result()
        return Encoded(image, bad, text)


def _chunks(rows: Iterable[int], size: int) -> list[list[int]]:
    rows = list(rows)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _encode_pictures(
    encoder: Encoder, paths: list[Path], turn: AbstractContextManager[object]
) -> tuple[Vectors, dict[int, str]]:
    tensors: list[Tensor] = []
    good: list[int] = []
    bad: dict[int, str] = {}
    for place, path in enumerate(paths):
        try:
            picture = open_picture(path, shorter_side=encoder.size)
        except BadPicture as error:
            bad[place] = str(error).removeprefix(f"{path}: ")
        else:
            tensors.append(encoder.transform(picture))
            good.append(place)
    vectors = np.zeros((len(paths), encoder.image_dim), np.float32)
    if tensors:
        with turn, torch.inference_mode():
            vectors[good] = encoder.encode_pictures(to_batch(tensors)).float().cpu().numpy()
    return vectors, bad


def _encode_texts(encoder: Encoder, texts: list[str], turn: AbstractContextManager[object]) -> Vectors:
    tokens = encoder.tokenize(texts)
    with turn, torch.inference_mode():
        vectors: Vectors = encoder.encode_texts(tokens).float().cpu().numpy()
    return vectors
