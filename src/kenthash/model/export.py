"""Both towers of a model as ONNX, each checked against PyTorch before it is kept.

`image.onnx` takes transformed pictures [B, 3, size, size] and `text.onnx` tokens, where the model has an encoder; a
model of feature vectors takes vectors [B, dim]. Both return outputs [B, K] in [-1, 1]; bit i is 1 where output i >= 0.
"""

from pathlib import Path

import torch

from kenthash.encoders import load_encoder
from kenthash.encoders.export import export_graph, export_towers
from kenthash.model.network import HashNetwork


def export_onnx(network: HashNetwork, out: Path) -> list[tuple[Path, float]]:
    """Write image.onnx and text.onnx; returns each path with its largest difference to PyTorch."""
    out.mkdir(parents=True, exist_ok=True)
    paths, heads = (out / "image.onnx", out / "text.onnx"), (network.image_head, network.text_head)
    if network.config.encoder:
        encoder = network.encoder or load_encoder(network.config.encoder)
        return list(zip(paths, export_towers(encoder, out, heads), strict=True))
    widths = (network.config.image_dim, network.config.text_dim)
    return [
        (path, export_graph(head, (torch.randn(2, width),), ["vectors"], path))
        for path, head, width in zip(paths, heads, widths, strict=True)
    ]
