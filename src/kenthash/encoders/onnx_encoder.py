"""An encoder as ONNX graphs: what pictures and texts go through when they are indexed and searched. Without PyTorch.

A folder holds it: `encoder.json` (which encoder, of which weights, how pictures are prepared, and the digests of the
other files), `image.onnx`, `text.onnx` and `tokenizer.json`. `export` makes such folders, where PyTorch is installed:
in the user's cache for the encoders that kenthash knows by name, in the model folder for one that was trained. `clip`
makes one of graphs that are published as such.
"""

import html
import string
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from kenthash.data.pictures import Pixels, Resampling, Square
from kenthash.encoders.graph import Graph, Vectors, check_file, remedy
from kenthash.errors import DataError
from kenthash.files import content_digest, read_json, write_json

FORMAT = 1
ABOUT = "encoder.json"
FILES = ("image.onnx", "text.onnx", "tokenizer.json")

RGB = tuple[float, float, float]
Clean = Literal["", "whitespace", "lower", "canonicalize"]


@dataclass(frozen=True)
class EncoderAbout:
    """What `encoder.json` says."""

    spec: str  # what `load_encoder` takes to make it with PyTorch
    name: str  # the spec, and for weights from a file also which
    weights: str  # the digest of its weights
    towers: dict[str, str]  # in words, of "image" and "text"
    image_dim: int
    text_dim: int
    size: int  # of the pictures' sides, in pixels
    mean: RGB
    std: RGB
    resample: Resampling
    clean: Clean  # what is done to a text before it is tokenized
    zeroed_token: int | None  # a token that becomes 0, which some tokenizers of open_clip ask for
    files: dict[str, str] = field(default_factory=dict)  # name -> sha256
    # What becomes of the text graph's output: taken as it is, or the mean over its tokens, normalised.
    pooling: Literal["", "mean"] = ""


class OnnxEncoder:
    """The encoder in a folder. A graph is opened when it is first needed: words do not wait for the picture tower."""

    # What a core is given at once. It computes one item after the other, so that larger chunks gain nothing: a few
    # texts, such as the queries of a service, are shared out among all cores.
    picture_chunk, text_chunk = 4, 1

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self.folder, self.device = folder, device
        self.about = read_about(folder)
        self.spec, self.name, self.weights = self.about.spec, self.about.name, self.about.weights
        self.towers = self.about.towers
        self.image_dim, self.text_dim, self.size = self.about.image_dim, self.about.text_dim, self.about.size

    def square(self) -> Square:
        """The pixels that it takes; see `Square`."""
        return Square(self.size, self.about.resample)

    def picture_vectors(self, squares: Sequence[Pixels]) -> Vectors:
        """Pixels as `square` asks for them to vectors [n, image_dim], one after the other."""
        graph, vectors = self._image_graph, np.empty((len(squares), self.image_dim), np.float32)
        for row, pixels in enumerate(squares):
            vectors[row] = graph.run({graph.inputs[0]: self._scaled(pixels)})
        return vectors

    def _scaled(self, pixels: Pixels) -> NDArray[np.float32]:
        """The network's input [1, 3, size, size]: (x / 255 - mean) / std."""
        scaled = pixels.astype(np.float32)
        scaled -= np.array(self.about.mean, np.float32) * np.float32(255)
        scaled *= 1 / (np.array(self.about.std, np.float32) * np.float32(255))
        return np.ascontiguousarray(scaled.transpose(2, 0, 1))[None]

    def text_vectors(self, texts: Sequence[str]) -> Vectors:
        graph, vectors = self._text_graph, np.empty((len(texts), self.text_dim), np.float32)
        for row, text in enumerate(texts):
            output = graph.run(self.tokenize(text))
            vectors[row] = output if not self.about.pooling else _normalised(output.mean(axis=0))
        return vectors

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    def one_thread(self) -> AbstractContextManager[object]:
        return nullcontext()  # a graph always computes on one core

    def tokenize(self, text: str) -> dict[str, NDArray[np.int64]]:
        """The inputs of the text graph for one text: its tokens, and a mask and the numbers of segments, of which there
        is one, where the graph takes them."""
        line = self._tokenizer.encode(cleaned(text, self.about.clean))
        tokens = np.array([line.ids], np.int64)
        if self.about.zeroed_token is not None:
            tokens[tokens == self.about.zeroed_token] = 0
        parts = (tokens, np.array([line.attention_mask], np.int64), np.array([line.type_ids], np.int64))
        return dict(zip(self._text_graph.inputs, parts, strict=False))

    def knows(self, text: str) -> bool:
        """Whether any part of a text is in the vocabulary, which may have no emoji, for example, and no letters of some
        languages. All other texts get the same vector."""
        unknown = getattr(self._tokenizer.model, "unk_token", None)  # byte-level vocabularies have none
        tokens = self._tokenizer.encode(cleaned(text, self.about.clean), add_special_tokens=False).tokens
        return any(token != unknown for token in tokens)

    @cached_property
    def _image_graph(self) -> Graph:
        return self._graph("image.onnx")

    @cached_property
    def _text_graph(self) -> Graph:
        return self._graph("text.onnx")

    def _graph(self, name: str) -> Graph:
        return Graph(self.folder / name, self.about.files[name], self.device)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        path = self.folder / "tokenizer.json"
        check_file(path, self.about.files["tokenizer.json"])
        return Tokenizer.from_file(str(path))


def read_about(folder: Path) -> EncoderAbout:
    path = folder / ABOUT
    try:
        values: Any = read_json(path)
    except DataError as error:
        raise DataError(f"{error}: {remedy(path)}") from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise DataError(f"{path}: not an encoder of format {FORMAT}: it was written by another version of kenthash")
    names = {part.name for part in fields(EncoderAbout)}
    needed = {part.name for part in fields(EncoderAbout) if part.default is part.default_factory is MISSING}
    if not needed | {"files"} <= values.keys() <= names or not set(FILES) <= set(values["files"]):
        raise DataError(f"{path}: not the description of an encoder: {remedy(path)}")
    return EncoderAbout(**values)


def is_whole(folder: Path) -> bool:
    """Whether all files of an encoder are as they were written."""
    try:
        for name, digest in read_about(folder).files.items():
            check_file(folder / name, digest)
    except DataError:
        return False
    return True


def write_about(folder: Path, about: EncoderAbout) -> None:
    """Write `encoder.json` of a folder, in which the other files are, with their digests."""
    about = replace(about, files={name: content_digest(folder / name) for name in FILES})
    write_json(folder / ABOUT, {"format": FORMAT, **asdict(about)})


def _normalised(vector: Vectors) -> Vectors:
    return vector / max(np.linalg.norm(vector), np.float32(1e-12))


def cleaned(text: str, how: Clean) -> str:
    """What open_clip's tokenizers do to a text first: mend mixed-up encodings and entities, then spaces and case."""
    if not how:
        return text
    import ftfy

    text = html.unescape(html.unescape(ftfy.fix_text(text)))
    if how == "canonicalize":
        text = text.replace("_", " ").translate(str.maketrans("", "", string.punctuation))
    text = " ".join(text.split())
    return text if how == "whitespace" else text.lower()
