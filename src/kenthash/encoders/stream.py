"""A stream of pictures and texts through an encoder, with all cores busy and memory bounded.

On a CPU every worker thread takes a few pictures, decodes them and runs them through the network on its one core. No
core waits for another (as the threads inside one forward pass do at every layer), decoding fills no queue that the
network must empty, and a result does not depend on the number of cores. On a GPU the workers decode larger chunks and
take turns at the network.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kenthash.data.photo_facts import Facts
from kenthash.data.pictures import BadPicture, PictureInput, Pixels, Square, square_with_facts
from kenthash.progress import cores

BATCH = 64  # items that are best handed over at once
AHEAD = 2  # batches that are worked on while one is handed over

Vectors = NDArray[np.float32]
PictureVectors = NDArray[np.float16]
Decode = Callable[[PictureInput, Square], tuple[Pixels, Facts]]


class VectorEncoder(Protocol):
    """What both kinds of encoders have in common: ONNX graphs (`OnnxEncoder`), and networks in PyTorch (`Encoder`)."""

    spec: str
    name: str
    weights: str
    towers: dict[str, str]
    image_dim: int
    text_dim: int
    picture_chunk: int
    text_chunk: int

    @property
    def on_cpu(self) -> bool: ...

    def square(self) -> Square: ...

    def picture_vectors(self, squares: Sequence[Pixels]) -> Vectors: ...

    def text_vectors(self, texts: Sequence[str]) -> Vectors: ...

    def one_thread(self) -> AbstractContextManager[object]:
        """Within it, this thread and those that it starts compute on one core each."""


@dataclass(frozen=True)
class EncodeBatch:
    pictures: Sequence[PictureInput]
    texts: list[str]


@dataclass(frozen=True)
class Encoded:
    image: PictureVectors  # [P, Di], zeros where the picture is bad
    facts: list[Facts]  # what the files say about the pictures; {} where the picture is bad
    bad: dict[int, str]  # which pictures of the batch could not be used, and why
    text: Vectors  # [T, Dt]


def picture_vectors(encoder: VectorEncoder, squares: Sequence[Pixels]) -> PictureVectors:
    """The vectors of a few pictures, in the float16 of a feature pack: by way of a pack a picture has the same code.

    On a CPU one thread computes them, since sums that several threads share come out otherwise in the last digits.
    """
    with encoder.one_thread(), np.errstate(over="ignore"):  # what is too large becomes infinite
        return encoder.picture_vectors(squares).astype(np.float16)


def encode_stream(
    encoder: VectorEncoder,
    batches: Iterable[EncodeBatch],
    decode: Decode = square_with_facts,
    threads: int | None = None,
) -> Generator[Encoded]:
    """Encode batches in order, a few of them at a time, by as many threads as there are processors, or by `threads`. A
    folder's pictures, which anybody may have made, are to be decoded by a `DecoderPool`."""
    turn: AbstractContextManager[object] = nullcontext() if encoder.on_cpu else Lock()
    pool = ThreadPoolExecutor(threads or (cores() if encoder.on_cpu else min(16, cores())), "encode")
    waiting: deque[_Pending] = deque()
    with encoder.one_thread():
        try:
            for batch in batches:
                waiting.append(_Pending(encoder, batch, decode, pool, turn))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().gather()
            while waiting:
                yield waiting.popleft().gather()
        finally:
            pool.shutdown(cancel_futures=True)


class _Pending:
    """The chunks of a batch, on their way."""

    def __init__(
        self,
        encoder: VectorEncoder,
        batch: EncodeBatch,
        decode: Decode,
        pool: ThreadPoolExecutor,
        turn: AbstractContextManager[object],
    ) -> None:
        self.encoder, self.batch = encoder, batch
        on_cpu = encoder.on_cpu
        self.pictures: list[tuple[list[int], Future[tuple[PictureVectors, dict[int, Facts], dict[int, str]]]]] = []
        size = encoder.picture_chunk if on_cpu else max(1, len(batch.pictures))
        for rows in _chunks(range(len(batch.pictures)), size):
            sources = [batch.pictures[row] for row in rows]
            self.pictures.append((rows, pool.submit(_encode_pictures, encoder, sources, decode, turn)))
        self.texts: list[tuple[list[int], Future[Vectors]]] = []
        # Texts of like length together: the shorter ones of a chunk are padded to the longest.
        by_length = sorted(range(len(batch.texts)), key=lambda row: len(batch.texts[row]))
        for rows in _chunks(by_length, encoder.text_chunk if on_cpu else 8 * encoder.text_chunk):
            texts = [batch.texts[row] for row in rows]
            self.texts.append((rows, pool.submit(_encode_texts, encoder, texts, turn)))

    def gather(self) -> Encoded:
        image = np.zeros((len(self.batch.pictures), self.encoder.image_dim), np.float16)
        text = np.zeros((len(self.batch.texts), self.encoder.text_dim), np.float32)
        bad: dict[int, str] = {}
        facts: list[Facts] = [{} for _ in self.batch.pictures]
        for rows, pictures in self.pictures:
            image[rows], described, reasons = pictures.result()
            for place, photo_facts in described.items():
                facts[rows[place]] = photo_facts
            bad |= {rows[place]: reason for place, reason in reasons.items()}
        for rows, texts in self.texts:
            text[rows] = texts.result()
        return Encoded(image, facts, bad, text)


def _chunks(rows: Iterable[int], size: int) -> list[list[int]]:
    rows = list(rows)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _encode_pictures(
    encoder: VectorEncoder, sources: list[PictureInput], decode: Decode, turn: AbstractContextManager[object]
) -> tuple[PictureVectors, dict[int, Facts], dict[int, str]]:
    squares: dict[int, Pixels] = {}
    facts: dict[int, Facts] = {}
    bad: dict[int, str] = {}
    for place, source in enumerate(sources):
        try:
            squares[place], facts[place] = decode(source, encoder.square())
        except BadPicture as error:
            bad[place] = error.reason
    vectors = np.zeros((len(sources), encoder.image_dim), np.float16)
    if squares:
        with turn:
            vectors[list(squares)] = picture_vectors(encoder, list(squares.values()))
    for place in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
        bad[place], vectors[place] = "the encoder gives a vector with NaN or infinity", 0
    return vectors, facts, bad


def _encode_texts(encoder: VectorEncoder, texts: list[str], turn: AbstractContextManager[object]) -> Vectors:
    with turn:
        return encoder.text_vectors(texts)
