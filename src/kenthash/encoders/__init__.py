"""Encoders: pictures and words to vectors.

`light` needs no network: its weights come as Python packages. `openclip:...` is any model of the open_clip library.
Vectors that are at hand already need no encoder: `kenthash.encoders.features` opens them.
"""

from kenthash.encoders.base import Encoder
from kenthash.errors import UsageError

__all__ = ["Encoder", "encoder_name", "load_encoder"]

CHOICES = "light, openclip:MODEL/TAG, openclip:MODEL/FILE or openclip:FOLDER"


def load_encoder(spec: str, device: str = "cpu", trainable: bool = False, pretrained: bool = True) -> Encoder:
    """Load an encoder, frozen unless `trainable`.

    `pretrained=False` builds the network of a trainable encoder without its weights, for a saved model that brings
    its own.
    """
    encoder: Encoder
    kind, _, rest = spec.partition(":")
    if spec == "light":
        from kenthash.encoders.light import LightEncoder

        encoder = LightEncoder(trainable, pretrained)
    elif kind == "openclip" and rest:
        from kenthash.encoders.openclip import OpenClipEncoder

        encoder = OpenClipEncoder(rest, trainable, pretrained)
    else:
        raise UsageError(f"unknown encoder {spec!r}: choose {CHOICES}")
    return encoder.to(check_device(device))


def encoder_name(spec: str) -> str:
    """The name that `load_encoder(spec)` would have, without loading it: what the feature cache asks for."""
    kind, _, rest = spec.partition(":")
    if spec == "light":
        return spec
    if kind == "openclip" and rest:
        from kenthash.encoders.openclip_source import find_source

        return find_source(rest).name
    raise UsageError(f"unknown encoder {spec!r}: choose {CHOICES}")


def check_device(device: str) -> str:
    """A device that is there; `auto` is a GPU where there is one."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {device!r} cannot be used here: choose cpu, or cuda where there is a GPU") from error
    return device
