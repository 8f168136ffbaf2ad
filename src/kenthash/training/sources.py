"""Where batches come from: vectors of a feature pack, or pictures and texts through a trainable encoder.

Both give the two towers' vectors of some rows, each row with a caption of a given number.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from kenthash.data.dataset import Dataset
from kenthash.data.decoding import DecoderPool
from kenthash.data.pack import FeaturePack, refuse_bad_rows
from kenthash.data.pictures import BadPicture
from kenthash.data.splits import Rows
from kenthash.encoders import open_encoder
from kenthash.encoders.base import Encoder, Tokens
from kenthash.encoders.stream import BATCH, EncodeBatch, encode_stream
from kenthash.errors import DataError, KenthashError
from kenthash.files import alone, atomic_write, cache_folder, load_array
from kenthash.model.network import HashNetwork

NO_ENCODER = "the pack does not say which encoder made its vectors: name it as `encoder` in its meta.json"
OR_BY_RECIPE = ", or give that of its texts by --set encoder.spec=NAME, for example clip"
COMPARED = 8  # texts of a pack that an encoder is tried on
SAME = 0.9  # mean cosine of their vectors; weights rounded to int8 leave more than that

Pair = tuple[Tensor, Tensor]  # image vectors [B, Di], text vectors [B, Dt]


class FeatureSource:
    """Items of a feature pack, held on the device as float32."""

    def __init__(self, pack: FeaturePack, device: torch.device, text_encoder: str = "") -> None:
        """`text_encoder` names what encodes further texts, of a pack that does not say which encoder made it."""
        self.dataset = pack.dataset
        self.encoder_spec = pack.encoder  # for new pictures and texts; "" where the pack does not say
        self.encoder_weights = pack.encoder_weights
        self.image_dim, self.text_dim = pack.image.shape[1], pack.text.shape[1]
        self.captions = np.diff(pack.text_offsets)  # the number of each item's
        self._first_texts = pack.text_offsets[:-1]
        refuse_bad_rows(pack)
        self._image = torch.from_numpy(np.array(pack.image, np.float32)).to(device)
        self._text = torch.from_numpy(np.array(pack.text, np.float32)).to(device)
        self._written: dict[str, Tensor] = {}
        self.text_encoder = pack.encoder or text_encoder
        self.no_texts = NO_ENCODER + OR_BY_RECIPE  # why further texts cannot be encoded; "" where they can
        if self.text_encoder:
            self.no_texts = "" if pack.encoder else _why_not(text_encoder, pack)

    def vectors(self, rows: Rows, captions: Rows, train: bool = False) -> Pair:
        """Vectors of `rows`, each with its caption of that number (0 is the first); zeros where it has no caption."""
        return self._image[torch.from_numpy(rows)], self.text_vectors(rows, captions)

    def text_vectors(self, rows: Rows, captions: Rows) -> Tensor:
        there = self.captions[rows] > 0
        if there.all():
            return self._text[torch.from_numpy(self._first_texts[rows] + captions)]
        vectors = torch.zeros(len(rows), self.text_dim, device=self._text.device)
        vectors[torch.from_numpy(there)] = self._text[torch.from_numpy((self._first_texts[rows] + captions)[there])]
        return vectors

    def written(self, texts: list[str], train: bool = False) -> Tensor:
        """Vectors of any texts, by the encoder that made those of the pack; each is encoded once."""
        if missing := [text for text in dict.fromkeys(texts) if text not in self._written]:
            vectors = text_features(missing, self.text_encoder, self.encoder_weights)
            if vectors.shape[1] != self.text_dim:
                raise DataError(
                    f"{self.dataset.name}: its text vectors have {self.text_dim} dimensions, but its encoder "
                    f"{self.text_encoder} gives {vectors.shape[1]}: correct `encoder` in meta.json"
                )
            self._written.update(zip(missing, torch.from_numpy(vectors), strict=True))
        return torch.stack([self._written[text] for text in texts]).to(self._text.device)


def text_features(texts: Sequence[str], encoder: str, weights: str = "") -> NDArray[np.float32]:
    """The vectors [n, Dt] of texts that belong to no picture, such as prompts, by the encoder that is named so and has
    these weights (see `open_encoder`). They are kept in the user's cache, in the float16 of a feature pack, so that a
    text has the vector that it would have there."""
    opened = open_encoder(encoder, weights=weights)
    digest = hashlib.sha256(json.dumps([opened.name, opened.weights, list(texts)]).encode()).hexdigest()
    path = cache_folder() / "texts" / f"{digest[:32]}.npy"
    if not path.is_file():
        with alone(path.parent):  # the runs of a comparison, side by side, ask for the same texts
            if not path.is_file():
                batches = (EncodeBatch([], list(texts[at : at + BATCH])) for at in range(0, len(texts), BATCH))
                with closing(encode_stream(opened, batches)) as stream:
                    vectors = np.concatenate([encoded.text.astype(np.float16) for encoded in stream])
                with atomic_write(path) as file:
                    np.save(file, vectors, allow_pickle=False)
    return np.asarray(load_array(path), np.float32)


def _why_not(encoder: str, pack: FeaturePack) -> str:
    """Why the encoder that somebody names cannot be that of the texts of `pack`; "" where it can. It has to give
    vectors of their width and, where the pack holds its texts, the vectors of the first of them."""
    offsets, texts = pack.text_offsets.tolist(), pack.dataset.texts
    rows = [row for row in range(len(pack)) if offsets[row] < offsets[row + 1]][:COMPARED] if texts else []
    known = [texts[row][0] for row in rows] if texts else []
    try:
        vectors = text_features(known or ["a photo"], encoder, pack.encoder_weights)
    except KenthashError as error:
        return str(error)
    if vectors.shape[1] != pack.text.shape[1]:
        return (
            f"encoder.spec={encoder} gives {vectors.shape[1]} dimensions, but text vectors of the pack have "
            f"{pack.text.shape[1]}: name the encoder that made them"
        )
    if rows:
        own = np.asarray(pack.text[[offsets[row] for row in rows]], np.float32)
        lengths = np.linalg.norm(own, axis=1) * np.linalg.norm(vectors, axis=1)
        if ((own * vectors).sum(axis=1) / np.maximum(lengths, 1e-12)).mean() < SAME:
            return f"encoder.spec={encoder} gives other vectors of its texts: name the encoder that made them"
    return ""


class PictureSource:
    """Items of a picture data set, encoded at every request by an encoder that may be learning."""

    def __init__(
        self, dataset: Dataset, encoder: Encoder, device: torch.device, threads: int = 4, chunk: int = 0
    ) -> None:
        """With `chunk`, a training step encodes so many pairs at a time and keeps none of what lies between: it is
        computed again, chunk by chunk, when gradients go back. So memory is that of a chunk, and the gradient that of
        the whole batch, whatever the loss compares in it, for a third more work."""
        if dataset.pictures is None or dataset.texts is None:
            raise DataError(f"{dataset.name}: training an encoder needs the pictures and texts themselves, not a pack")
        self.dataset = dataset
        self.encoder = encoder
        self.encoder_spec = encoder.spec
        self.encoder_weights = ""  # its own, which are saved with the model
        self.no_texts = ""
        self.image_dim, self.text_dim = encoder.image_dim, encoder.text_dim
        self._captions = dataset.captions()
        self.captions = np.array([len(texts) for texts in self._captions])
        self._device = device
        self._chunk = chunk
        self._pool = ThreadPoolExecutor(threads)
        self._decoders = DecoderPool()

    def vectors(self, rows: Rows, captions: Rows, train: bool = False) -> Pair:
        assert self.dataset.pictures is not None
        paths = [self.dataset.pictures[row] for row in rows]
        texts = self._texts(rows, captions)
        if not train:
            return self._evaluated(paths, texts)
        square = self.encoder.square(crop=True)
        try:
            pixels = list(self._pool.map(lambda path: self._decoders.square(path, square), paths))
        except BadPicture as error:
            raise _unusable(error) from error
        pictures = self.encoder.transform(pixels)
        # Mixed precision where there is a GPU: the encoder is the whole cost there, the loss stays in float32.
        with torch.autocast("cuda", torch.bfloat16, enabled=self._device.type == "cuda"):
            image = self._in_chunks(self.encoder.encode_pictures, pictures)
            text = self._in_chunks(self.encoder.encode_texts, self.encoder.tokenize(texts))
        return image.float(), text.float()

    def _in_chunks(self, encode: Callable[..., Tensor], inputs: Tokens) -> Tensor:
        """`encode` of all inputs, which it moves to its device."""
        rows = len(inputs if isinstance(inputs, Tensor) else next(iter(inputs.values())))
        if not 0 < self._chunk < rows:
            return encode(inputs)
        parts = [_rows(inputs, slice(start, start + self._chunk)) for start in range(0, rows, self._chunk)]
        return torch.cat([checkpoint(encode, part, use_reentrant=False) for part in parts])

    def text_vectors(self, rows: Rows, captions: Rows) -> Tensor:
        return self._evaluated([], self._texts(rows, captions))[1]

    def written(self, texts: list[str], train: bool = False) -> Tensor:
        """Vectors of any texts; with gradients where they are to be learned from."""
        if not train:
            return self._evaluated([], texts)[1]
        with torch.autocast("cuda", torch.bfloat16, enabled=self._device.type == "cuda"):
            return self._in_chunks(self.encoder.encode_texts, self.encoder.tokenize(texts)).float()

    def _texts(self, rows: Rows, captions: Rows) -> list[str]:
        pairs = ((self._captions[row], caption) for row, caption in zip(rows, captions, strict=True))
        return [texts[caption] if texts else "" for texts, caption in pairs]

    def _evaluated(self, paths: list[Path], texts: list[str]) -> Pair:
        """As `encode` and `index add` encode them, so that an item is judged by the code that it has there."""
        starts = range(0, max(len(paths), len(texts)), BATCH)
        batches = [EncodeBatch(paths[start : start + BATCH], texts[start : start + BATCH]) for start in starts]
        images: list[Tensor] = []
        written: list[Tensor] = []
        with closing(encode_stream(self.encoder, batches, self._decoders.square_with_facts)) as stream:
            for batch, encoded in zip(batches, stream, strict=True):
                for place, reason in encoded.bad.items():
                    raise _unusable(BadPicture(str(batch.pictures[place]), reason))
                images.append(torch.from_numpy(encoded.image).float())
                written.append(torch.from_numpy(encoded.text))
        return torch.cat(images).to(self._device), torch.cat(written).to(self._device)


def _rows(inputs: Tokens, part: slice) -> Tokens:
    return inputs[part] if isinstance(inputs, Tensor) else {name: values[part] for name, values in inputs.items()}


def _unusable(error: BadPicture) -> DataError:
    return DataError(f"{error}; take it out of the data (`kenthash data check` lists all such)")


VectorSource = FeatureSource | PictureSource


@dataclass(frozen=True)
class Outputs:
    """Outputs of both heads before signing, for some rows in order."""

    image: NDArray[np.float32]
    text: NDArray[np.float32]

    def first_bits(self, bits: int) -> "Outputs":
        return Outputs(self.image[:, :bits], self.text[:, :bits])


def head_outputs(network: HashNetwork, source: VectorSource, rows: Rows, batch: int = 1024) -> Outputs:
    """Outputs of `rows` with their first captions, dropout off."""
    network.modules().eval()
    images: list[Tensor] = []
    texts: list[Tensor] = []
    with torch.inference_mode():
        for start in range(0, len(rows), batch):
            part = rows[start : start + batch]
            image, text = source.vectors(part, np.zeros(len(part), np.int64))
            images.append(network.image_head(image).cpu())
            texts.append(network.text_head(text).cpu())
    return Outputs(torch.cat(images).numpy(), torch.cat(texts).numpy())


def caption_outputs(
    network: HashNetwork, source: VectorSource, rows: Rows, batch: int = 1024
) -> tuple[NDArray[np.float32], Rows]:
    """Outputs of all captions of `rows`, dropout off, and which of the rows each belongs to (0 is the first)."""
    network.modules().eval()
    numbers = source.captions[rows]
    items = np.repeat(np.arange(len(rows)), numbers)
    captions = np.arange(len(items)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    texts: list[Tensor] = []
    with torch.inference_mode():
        for start in range(0, len(items), batch):
            part = slice(start, start + batch)
            texts.append(network.text_head(source.text_vectors(rows[items[part]], captions[part])).cpu())
    return torch.cat(texts).numpy(), items
