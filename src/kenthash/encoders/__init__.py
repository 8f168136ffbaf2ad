"""Encoders: pictures and words to vectors.

`light` needs no network: its weights come as Python packages. `openclip:...` is any model of the open_clip library.
Vectors that are at hand already need no encoder: `kenthash.encoders.features` opens them.
"""

from kenthash.encoders.base import Encoder
from kenthash.errors import UsageError

__all__ = ["Encoder", "check_device", "encoder_name", "load_encoder"]

CHOICES = "light, openclip:MODEL/TAG, openclip:MODEL/FILE or openclip:FOLDER"


def load_encoder(spec: str, device: str = "cpu", trainable: bool = False, pretrained: bool = True) -> Encoder:
    """Load an encoder onto a device (see `check_device`), frozen unless `trainable`.

    `pretrained=False` builds the network of a trainable encoder without its weights, for a saved model that brings
    its own.
    """
    model = _openclip_model(spec)
    device = check_device(device)
    if model:
        from kenthash.encoders.openclip import OpenClipEncoder

        return OpenClipEncoder(model, trainable, pretrained).to(device)
    from kenthash.encoders.light import LightEncoder

    return LightEncoder(trainable, pretrained).to(device)


def encoder_name(spec: str) -> str:
    """The name that `load_encoder(spec)` would have, without loading it: what the feature cache asks for."""
    if model := _openclip_model(spec):
        from kenthash.encoders.openclip_source import find_source

        return find_source(model).name
    return spec


def _openclip_model(spec: str) -> str:
    """What follows "openclip:", or nothing for `light`."""
    kind, _, model = spec.partition(":")
    if spec != "light" and not (kind == "openclip" and model):
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
