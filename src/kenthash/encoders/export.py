"""From encoders in PyTorch to folders of ONNX graphs (`onnx_encoder`), each checked against PyTorch before it stays."""

import logging
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kenthash.encoders.base import Encoder
from kenthash.encoders.graph import Graph
from kenthash.encoders.onnx_encoder import ABOUT, FORMAT, EncoderAbout, OnnxEncoder, write_about
from kenthash.errors import KenthashError
from kenthash.files import alone, atomic_folder, cache_folder, content_digest

TOLERANCE = 1e-3  # of the largest value, or of 1: other kernels add in another order
EXAMPLE_TEXTS = ["two dogs and a kite", "A street where it doesn’t rain; 3 cafés &amp; a tram 🙂" + " on" * 300]


class ImageTower(nn.Module):
    """Transformed pictures [B, 3, size, size] to vectors, and on through a head where one is given."""

    def __init__(self, encoder: Encoder, head: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head or nn.Identity()

    def forward(self, pictures: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.encoder.encode_pictures(pictures))
        return outputs


class TextTower(nn.Module):
    """Tokens [B, L], with a mask where the encoder takes one, to vectors, and on through a head where one is given."""

    def __init__(self, encoder: Encoder, head: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head or nn.Identity()

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        given = tokens if mask is None else {"input_ids": tokens, "attention_mask": mask}
        outputs: Tensor = self.head(self.encoder.encode_texts(given))
        return outputs


def exported_folder(encoder: Encoder) -> Path:
    """The folder of an encoder in the user's cache, by the digest of its weights; made when first needed."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", encoder.name)[:60]
    folder = cache_folder() / "encoders" / f"{readable}-{encoder.weights[:16]}-{FORMAT}"
    if not (folder / ABOUT).is_file():
        with alone(folder.parent):
            if not (folder / ABOUT).is_file():
                print(f"writing the ONNX graphs of {encoder.name} to {folder}, once ...", file=sys.stderr)
                export_encoder(encoder, folder)
    return folder


def export_encoder(encoder: Encoder, folder: Path) -> None:
    """Write the folder of an encoder. It appears whole, by a rename."""
    with atomic_folder(folder) as partial:
        export_towers(encoder, partial)
        tokenizer, clean, zeroed = encoder.fast_tokenizer()
        tokenizer.save(str(partial / "tokenizer.json"))
        about = EncoderAbout(
            spec=encoder.spec, name=encoder.name, weights=encoder.weights, towers=encoder.towers,
            image_dim=encoder.image_dim, text_dim=encoder.text_dim, size=encoder.size, mean=encoder.mean,
            std=encoder.std, resample=encoder.resample, clean=clean, zeroed_token=zeroed,
        )  # fmt: skip
        write_about(partial, about)
        _check_texts(encoder, OnnxEncoder(partial))


def export_towers(encoder: Encoder, folder: Path, heads: tuple[nn.Module, nn.Module] | None = None) -> list[float]:
    """Write image.onnx and text.onnx; returns the largest difference of each to PyTorch."""
    image_head, text_head = heads or (None, None)
    pictures = torch.randn(2, 3, encoder.size, encoder.size)
    tokens = encoder.tokenize(EXAMPLE_TEXTS)
    texts = tuple(tokens.values()) if isinstance(tokens, dict) else (tokens,)
    image, text = ImageTower(encoder, image_head), TextTower(encoder, text_head)
    return [
        export_graph(image, (pictures,), ["pictures"], folder / "image.onnx"),
        export_graph(text, texts, ["tokens", "mask"][: len(texts)], folder / "text.onnx", encoder.any_length),
    ]


def export_graph(
    module: nn.Module, example: tuple[Tensor, ...], names: list[str], path: Path, any_length: bool = False
) -> float:
    """Write a module as a graph that takes any number of items; the largest difference to PyTorch.

    With `any_length` the second dimension is free as well.
    """
    module.eval()
    partial = path.with_name(f"{path.name}.partial")
    try:
        _write(module, example, names, partial, any_length)
        # Another number of items than the example's, and where that is free another length.
        more = tuple(torch.cat([value, value[:1]])[:, : -1 if any_length else None] for value in example)
        with torch.inference_mode():
            expected = module(*more).numpy()
        outputs = Graph(partial, content_digest(partial)).run_batch(
            {name: value.numpy() for name, value in zip(names, more, strict=True)}
        )
        difference = float(np.abs(outputs - expected).max())
        if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
            raise KenthashError(
                f"{path.name}: the exported tower differs from PyTorch by {difference:.2g}; it was not kept"
            )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return difference


def _write(module: nn.Module, example: tuple[Tensor, ...], names: list[str], path: Path, any_length: bool) -> None:
    # Not of the example's own length or more, which may be the most that the network takes.
    length: dict[int, Any] = {1: torch.export.Dim("length", min=2, max=example[0].shape[1])} if any_length else {}
    free = tuple({0: torch.export.Dim("items")} | length for _ in example)
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # the exporter's remarks on its own optimiser
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, example, str(path), input_names=names, output_names=["outputs"], dynamic_shapes=free,
                external_data=False, dynamo=True, verbose=False,
            )  # fmt: skip
    except ImportError as error:
        raise KenthashError("exporting to ONNX needs more packages: pip install 'kenthash[onnx]'") from error
    finally:
        logging.disable(level)


def _check_texts(encoder: Encoder, exported: OnnxEncoder) -> None:
    """The exported tokenizer is another program than PyTorch's: what they make of the same texts must be the same."""
    for text in EXAMPLE_TEXTS:
        with torch.inference_mode():
            expected = encoder.encode_texts(encoder.tokenize([text])).float().numpy()
        difference = float(np.abs(exported.text_vectors([text]) - expected).max())
        if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
            raise KenthashError(f"{encoder.name}: its exported tokenizer is not that of PyTorch; it was not kept")
