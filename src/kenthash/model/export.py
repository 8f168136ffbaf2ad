"""Both towers of a model as ONNX, each checked against PyTorch before it is kept.

`image.onnx` takes transformed pictures [B, 3, size, size] and `text.onnx` tokens, where the model has an encoder; a
model of feature vectors takes vectors [B, dim]. Both return outputs [B, K] in [-1, 1]; bit i is 1 where output i >= 0.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kenthash.encoders import Encoder
from kenthash.errors import KenthashError
from kenthash.model.hasher import Hasher

TOLERANCE = 1e-3  # of outputs in [-1, 1]: other kernels add in another order
EXAMPLE_TEXTS = ["two dogs and a kite", "a street at night"]


class _ImageTower(nn.Module):
    def __init__(self, head: nn.Module, encoder: Encoder | None) -> None:
        super().__init__()
        self.head, self.encoder = head, encoder

    def forward(self, pictures: Tensor) -> Tensor:
        vectors = pictures if self.encoder is None else self.encoder.encode_pictures(pictures)
        outputs: Tensor = self.head(vectors)
        return outputs


class _TextTower(nn.Module):
    def __init__(self, head: nn.Module, encoder: Encoder | None) -> None:
        super().__init__()
        self.head, self.encoder = head, encoder

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.encoder is None:
            vectors = tokens
        else:
            given = tokens if mask is None else {"input_ids": tokens, "attention_mask": mask}
            vectors = self.encoder.encode_texts(given)
        outputs: Tensor = self.head(vectors)
        return outputs


def export_onnx(hasher: Hasher, out: Path) -> list[tuple[Path, float]]:
    """Write image.onnx and text.onnx; returns each path with its largest difference to PyTorch."""
    out.mkdir(parents=True, exist_ok=True)
    encoder = hasher.encoder if hasher.config.encoder else None
    if encoder is None:
        image: tuple[Tensor, ...] = (torch.randn(2, hasher.config.image_dim),)
        text: tuple[Tensor, ...] = (torch.randn(2, hasher.config.text_dim),)
    else:
        image = (torch.randn(2, 3, encoder.size, encoder.size),)
        tokens = encoder.tokenize(EXAMPLE_TEXTS)
        text = tuple(tokens.values()) if isinstance(tokens, dict) else (tokens,)
    words = encoder is not None
    return [
        _export(
            _ImageTower(hasher.image_head, encoder), image, ["pictures" if words else "vectors"], out / "image.onnx"
        ),
        _export(_TextTower(hasher.text_head, encoder), text, ["tokens", "mask"][: len(text)], out / "text.onnx"),
    ]


def _export(tower: nn.Module, example: tuple[Tensor, ...], names: list[str], path: Path) -> tuple[Path, float]:
    try:
        import onnxruntime
    except ImportError as error:
        raise KenthashError("exporting to ONNX needs more packages: pip install 'kenthash[onnx]'") from error
    tower.eval()
    partial = path.with_suffix(".partial.onnx")
    try:
        _write(tower, example, names, partial)
        more = tuple(torch.cat([value, value[:1]]) for value in example)  # another size than the example's
        with torch.inference_mode():
            expected = tower(*more).numpy()
        session = onnxruntime.InferenceSession(str(partial), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {name: value.numpy() for name, value in zip(names, more, strict=True)})
        difference = float(np.abs(found - expected).max())
        if not difference <= TOLERANCE:
            raise KenthashError(
                f"{path.name}: the exported tower differs from PyTorch by {difference:.2g}; it was not kept"
            )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path, difference


def _write(tower: nn.Module, example: tuple[Tensor, ...], names: list[str], path: Path) -> None:
    # The number of items is free, and of token inputs the length too.
    free: tuple[dict[int, Any], ...] = tuple(
        {0: torch.export.Dim("items")} | ({1: torch.export.Dim("length", min=2)} if value.dtype == torch.int64 else {})
        for value in example
    )
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # the exporter's remarks on its own optimiser
    try:
        with torch.inference_mode():
            torch.onnx.export(
                tower, example, str(path), input_names=names, output_names=["outputs"], dynamic_shapes=free,
                external_data=False, dynamo=True, verbose=False,
            )  # fmt: skip
    finally:
        logging.disable(level)
