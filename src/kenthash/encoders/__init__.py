"""Encoders: pictures and words to vectors.

`clip` needs no PyTorch: its graphs are fetched once, through the package index. `light` needs no network: its weights
come with the extra `train`. `openclip:...` is any model of the open_clip library.
Vectors that are at hand already need no encoder: `kenthash.data.pack` opens them.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from kenthash.errors import DataError, KenthashError, UsageError, missing_extra
from kenthash.files import cache_folder

if TYPE_CHECKING:
    from kenthash.encoders.base import Encoder
    from kenthash.encoders.onnx_encoder import OnnxEncoder
    from kenthash.encoders.stream import VectorEncoder

__all__ = ["check_device", "encoder_name", "find_exported", "load_encoder", "open_encoder", "vector_encoder"]

CHOICES = "clip, light, openclip:MODEL/TAG, openclip:MODEL/FILE or openclip:FOLDER"


def load_encoder(spec: str, device: str = "cpu", trainable: bool = False, pretrained: bool = True) -> "Encoder":
    """Load an encoder in PyTorch onto a device (see `check_device`), frozen unless `trainable`.

    `pretrained=False` builds the network of a trainable encoder without its weights, for a saved model that brings
    its own.
    """
    model = _openclip_model(spec)
    if spec == "clip":
        raise UsageError(
            "clip: is made of ONNX graphs, which PyTorch can neither train nor export: use another encoder"
        )
    device = check_device(device)
    if model:
        from kenthash.encoders.openclip import OpenClipEncoder

        return OpenClipEncoder(model, trainable, pretrained).to(device)
    from kenthash.encoders.light import LightEncoder

    return LightEncoder(trainable, pretrained).to(device)


def open_encoder(spec: str, device: str = "cpu", weights: str = "") -> "OnnxEncoder":
    """The ONNX graphs of an encoder, from the user's cache. Those of `clip` are fetched once, those of others made once
    where PyTorch is installed.

    `weights` is the digest that its weights must have: codes by others would have no distance to those of a model that
    was trained with these. Without it, those that were exported last are taken.
    """
    from kenthash.encoders.onnx_encoder import OnnxEncoder

    _openclip_model(spec)  # which refuses what is no encoder
    if spec == "clip":
        from kenthash.encoders.clip import clip_weights, get_clip

        if weights not in ("", clip_weights()):
            raise DataError(
                f"clip: this version of kenthash has other weights (digest {clip_weights()[:12]}) than the model was "
                f"trained with ({weights[:12]}): use the version that made the model, or train a new one"
            )
        return OnnxEncoder(get_clip(), device)
    folder = cache_folder() / "encoders"
    exported = find_exported(spec, weights)
    if exported is None:
        try:
            from kenthash.encoders.export import exported_folder

            encoder = load_encoder(spec)
        except ModuleNotFoundError as error:
            extra = "train" if spec == "light" else "openclip"
            raise KenthashError(
                f"{spec}: its ONNX graphs are not in {folder}, and {error.name}, which makes them, is not installed: "
                f"pip install 'kenthash[{extra}]', or copy them from a machine that has them"
            ) from error
        if weights and encoder.weights != weights:
            raise DataError(
                f"{spec}: has other weights now than those that the model was trained with (digest "
                f"{encoder.weights[:12]}, not {weights[:12]}): put these back, or train a new model"
            )
        exported = exported_folder(encoder)
    return OnnxEncoder(exported, device)


def vector_encoder(spec: str, device: str = "cpu") -> "VectorEncoder":
    """What encodes whole data sets: on a CPU the ONNX graphs that an index is filled and searched with, on a GPU the
    network in PyTorch.

    The weights that the encoder has now are known by loading it in PyTorch. Where it is not installed, the
    graphs in the cache are used.
    """
    if spec == "clip":
        from kenthash.encoders.graph import check_runtime_device

        return open_encoder(spec, check_runtime_device(device))
    try:
        encoder = load_encoder(spec, device)
    except ModuleNotFoundError as error:
        if missing_extra(error) is None or device not in ("auto", "cpu"):
            raise
        return open_encoder(spec)
    if not encoder.on_cpu:
        return encoder
    from kenthash.encoders.export import exported_folder
    from kenthash.encoders.onnx_encoder import OnnxEncoder

    return OnnxEncoder(exported_folder(encoder))


def find_exported(spec: str, weights: str = "") -> Path | None:
    """The newest folder in the cache that holds this encoder; what another version of kenthash wrote is passed over.

    Weights are known by their digest, wherever their file is: then only the name of the network, which comes before
    the path, has to be the same.
    """
    from kenthash.encoders.onnx_encoder import ABOUT, read_about

    folders = (cache_folder() / "encoders").glob(f"*/{ABOUT}")
    for path in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            about = read_about(path.parent)
        except DataError:
            continue
        if about.spec == spec and not weights:
            return path.parent
        if about.weights == weights and about.spec.partition("/")[0] == spec.partition("/")[0]:
            return path.parent
    return None


def encoder_name(spec: str) -> str:
    """The name that `load_encoder(spec)` would have, without loading it: what the feature cache asks for."""
    if model := _openclip_model(spec):
        from kenthash.encoders.openclip_weights import find_source

        return find_source(model).name
    return spec


def _openclip_model(spec: str) -> str:
    """What follows "openclip:", or nothing for `clip` and `light`."""
    kind, _, model = spec.partition(":")
    if spec not in ("clip", "light") and not (kind == "openclip" and model):
        raise UsageError(f"unknown encoder {spec!r}: choose {CHOICES}")
    return model


def check_device(device: str) -> str:
    """A device that is there; `auto` is a GPU where there is one."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device).tolist()  # `meta` has tensors, but no values
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {device!r} cannot be used here: choose cpu, or cuda where there is a GPU") from error
    return device
