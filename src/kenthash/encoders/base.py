"""The interface of an encoder: a picture to a vector, a text to a vector, in batches, frozen or learning."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from kenthash.data.pictures import Pixels, Resampling, Square
from kenthash.encoders.onnx_encoder import Clean

RGB = tuple[float, float, float]
Tokens = Tensor | dict[str, Tensor]


class Encoder(nn.Module, ABC):
    """Two towers. `transform` and `tokenize` run on the CPU and in threads; the `encode_` methods move their batch to
    the encoder's device.

    A frozen encoder stays in evaluation mode whatever module it is part of: `train()` on the whole would otherwise
    turn on dropout and move the batch-norm averages of a backbone that is not trained.
    """

    spec: str  # what `load_encoder` takes to make it again
    name: str  # the spec, and for weights from a file also which: part of a pack's key
    weights: str  # a digest of the files that its weights come from; "" where it was made without them
    towers: dict[str, str]  # in words, of "image" and "text": what a pack's meta.json records
    image_dim: int
    text_dim: int
    size: int  # of the pictures' sides, in pixels
    mean: RGB
    std: RGB
    resample: Resampling = "bicubic"
    any_length: bool = True  # whether the text tower takes as many tokens as a text has
    # What one CPU core takes at once: larger batches fall out of its cache.
    picture_chunk: int = 8
    text_chunk: int = 32

    def __init__(self, trainable: bool) -> None:
        super().__init__()
        self.trainable = trainable

    def square(self, crop: bool = False) -> Square:
        """The pixels that it takes; see `Square`."""
        return Square(self.size, self.resample, crop)

    def transform(self, squares: Sequence[Pixels]) -> Tensor:
        """Pixels to the network's input [B, 3, size, size]: (x / 255 - mean) / std in float32. The memory keeps the
        channels last, the faster order for convolutions."""
        scaled = torch.from_numpy(np.stack(squares)).to(torch.float32)
        scaled.sub_(torch.tensor(self.mean) * 255).mul_(1 / (torch.tensor(self.std) * 255))
        return scaled.permute(0, 3, 1, 2)

    @abstractmethod
    def tokenize(self, texts: list[str]) -> Tokens: ...

    @abstractmethod
    def encode_pictures(self, pictures: Tensor) -> Tensor:
        """Transformed pictures [B, 3, size, size] to vectors [B, image_dim]."""

    @abstractmethod
    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Tokenized texts to vectors [B, text_dim]."""

    @abstractmethod
    def fast_tokenizer(self) -> tuple[Tokenizer, Clean, int | None]:
        """What does the same as `tokenize` without PyTorch, for one text at a time: a tokenizer, how texts are cleaned
        before it, and a token that becomes 0 after it."""

    def picture_vectors(self, squares: Sequence[Pixels]) -> NDArray[np.float32]:
        """The vectors of a few pictures, without gradients."""
        with torch.inference_mode():
            return self.encode_pictures(self.transform(squares)).float().cpu().numpy()

    def text_vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return self.encode_texts(self.tokenize(list(texts))).float().cpu().numpy()

    @property
    def on_cpu(self) -> bool:
        return self.device.type == "cpu"

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Within it, this thread and those that it starts compute on one core each: sums that several threads share
        differ in the last digits."""
        threads = torch.get_num_threads()
        if threads == 1 or not self.on_cpu:
            yield
            return
        torch.set_num_threads(1)  # also of threads that start later
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def train(self, mode: bool = True) -> Self:
        """Batch norms keep the statistics of their pretraining, as is usual where a network is fine-tuned: those
        of a small batch are noise, and moving averages of them are not what the weights learned with."""
        super().train(mode and self.trainable)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def apply_trainable(self) -> None:
        """Evaluation mode, and gradients only if the encoder is trainable. Constructors end with this."""
        self.requires_grad_(self.trainable)
        self.eval()
