"""Where batches come from: vectors of a feature pack, or pictures and texts through a trainable encoder.

Both give the two towers' vectors of some rows, each row with a caption of a given number.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kenthash.data.dataset import Dataset
from kenthash.data.decoding import DecoderPool
from kenthash.data.pack import FeaturePack, bad_rows
from kenthash.data.pictures import BadPicture
from kenthash.data.splits import Rows
from kenthash.encoders.base import Encoder
from kenthash.encoders.stream import BATCH, EncodeBatch, encode_stream
from kenthash.errors import DataError
from kenthash.model.network import HashNetwork

Pair = tuple[Tensor, Tensor]  # image vectors [B, Di], text vectors [B, Dt]


class FeatureSource:
    """Items of a feature pack, held on the device as float32."""

    def __init__(self, pack: FeaturePack, device: torch.device) -> None:
        self.dataset = pack.dataset
        self.encoder_spec = pack.encoder  # for new pictures and texts; "" where the pack does not say
        self.encoder_weights = pack.encoder_weights
        self.image_dim, self.text_dim = pack.image.shape[1], pack.text.shape[1]
        self.captions = np.diff(pack.text_offsets)
        self._first_texts = pack.text_offsets[:-1]
        for part, rows in bad_rows(pack).items():
            if rows:
                raise DataError(f"{pack.path / part}: row {rows[0]} holds NaN or infinity: encode that item again")
        self._image = torch.from_numpy(np.array(pack.image, np.float32)).to(device)
        self._text = torch.from_numpy(np.array(pack.text, np.float32)).to(device)

    def vectors(self, rows: Rows, captions: Rows, train: bool = False) -> Pair:
        """Vectors of `rows`, each with its caption of that number (0 is the first)."""
        return self._image[torch.from_numpy(rows)], self.text_vectors(rows, captions)

    def text_vectors(self, rows: Rows, captions: Rows) -> Tensor:
        return self._text[torch.from_numpy(self._first_texts[rows] + captions)]


class PictureSource:
    """Items of a picture data set, encoded at every request by an encoder that may be learning."""

    def __init__(self, dataset: Dataset, encoder: Encoder, device: torch.device, threads: int = 4) -> None:
        if dataset.pictures is None or dataset.texts is None:
            raise DataError(f"{dataset.name}: training an encoder needs the pictures and texts themselves, not a pack")
        if (empty := next((i for i, texts in enumerate(dataset.texts) if not texts), None)) is not None:
            raise DataError(f"{dataset.name}: item {dataset.ids[empty]} has no text: add one or remove the item")
        self.dataset = dataset
        self.encoder = encoder
        self.encoder_spec = encoder.spec
        self.encoder_weights = ""  # its own, which are saved with the model
        self.image_dim, self.text_dim = encoder.image_dim, encoder.text_dim
        self.captions = np.array([len(texts) for texts in dataset.texts])
        self._device = device
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
            image = self.encoder.encode_pictures(pictures.to(self._device))
            text = self.encoder.encode_texts(self.encoder.tokenize(texts))
        return image.float(), text.float()

    def text_vectors(self, rows: Rows, captions: Rows) -> Tensor:
        return self._evaluated([], self._texts(rows, captions))[1]

    def _texts(self, rows: Rows, captions: Rows) -> list[str]:
        assert self.dataset.texts is not None
        return [self.dataset.texts[row][caption] for row, caption in zip(rows, captions, strict=True)]

    def _evaluated(self, paths: list[Path], texts: list[str]) -> Pair:
        """As `encode` and `index add` encode them, so that an item is judged by the code that it has there."""
        starts = range(0, max(len(paths), len(texts)), BATCH)
        batches = [EncodeBatch(paths[start : start + BATCH], texts[start : start + BATCH]) for start in starts]
        images: list[Tensor] = []
        written: list[Tensor] = []
        with closing(encode_stream(self.encoder, batches, self._decoders.square)) as stream:
            for batch, encoded in zip(batches, stream, strict=True):
                for place, reason in encoded.bad.items():
                    raise _unusable(BadPicture(str(batch.pictures[place]), reason))
                images.append(torch.from_numpy(encoded.image).float())
                written.append(torch.from_numpy(encoded.text))
        return torch.cat(images).to(self._device), torch.cat(written).to(self._device)


def _unusable(error: BadPicture) -> DataError:
    return DataError(f"{error}; take it out of the data (`kenthash data check` lists all such)")


VectorSource = FeatureSource | PictureSource


@dataclass(frozen=True)
class Outputs:
    """Outputs of both heads before signing, for some rows in order."""

    image: NDArray[np.float32]
    text: NDArray[np.float32]


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
