"""From a picture to the tensor that a network takes. Named after what they do to the picture's shape.

The field crops the middle in training and squashes the whole picture in evaluation; both bicubic. Resizing is torch's
(uint8, antialiased): on photos Pillow's result but for a rounding of one in 255 in some pixels, three times as fast.
"""

from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

RGB = tuple[float, float, float]
Filter = Literal["bicubic", "bilinear"]

LONGEST = 16  # times its shorter side


def squash(picture: Image.Image, size: int, resample: Filter = "bicubic") -> Tensor:
    """The whole picture in a square: uint8 [3, size, size]."""
    return _resize(picture, size, size, resample)


def centre_crop(picture: Image.Image, size: int, resample: Filter = "bicubic") -> Tensor:
    """The shorter side to `size`, then the middle square: uint8 [3, size, size]."""
    picture = _without_ends(picture)
    width, height = picture.size
    short = min(width, height)
    width, height = size * width // short, size * height // short
    left, top = round((width - size) / 2), round((height - size) / 2)
    return _resize(picture, width, height, resample)[:, top : top + size, left : left + size]


def normalise(pixels: Tensor, mean: RGB, std: RGB) -> Tensor:
    """(x / 255 - mean) / std in float32. The memory keeps the channels last, the faster order for convolutions."""
    scaled = pixels.permute(1, 2, 0).to(torch.float32)  # a copy
    scaled.sub_(torch.tensor(mean) * 255).mul_(1 / (torch.tensor(std) * 255))
    return scaled.permute(2, 0, 1)


def to_batch(pictures: list[Tensor]) -> Tensor:
    """Stack [3, H, W] tensors to [B, 3, H, W]. Unlike plain `torch.stack`, this keeps the channels last."""
    return torch.stack([picture.permute(1, 2, 0) for picture in pictures]).permute(0, 3, 1, 2)


def _without_ends(picture: Image.Image) -> Image.Image:
    """A picture that is very long, less what is far from its middle: a line of pixels would grow to gigabytes."""
    width, height = picture.size
    reach = LONGEST * min(width, height)
    reach += (max(width, height) - reach) % 2  # as much off at either end
    left, top = max(0, (width - reach) // 2), max(0, (height - reach) // 2)
    return picture.crop((left, top, width - left, height - top)) if left or top else picture


def _resize(picture: Image.Image, width: int, height: int, resample: Filter) -> Tensor:
    rgb = picture if picture.mode == "RGB" else picture.convert("RGB")  # which copies, even where nothing changes
    pixels = torch.from_numpy(np.array(rgb)).permute(2, 0, 1)
    if picture.size == (width, height):
        return pixels
    return F.interpolate(pixels.unsqueeze(0), (height, width), mode=resample, antialias=True).squeeze(0)
