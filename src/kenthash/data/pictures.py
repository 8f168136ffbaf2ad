"""Opening a picture from anywhere: upright, RGB, bounded in memory, or refused in one line.

`to_square` is the one way from a picture to the pixels that an encoder takes. Whatever encodes pictures goes through
it, so that a file has the same code wherever it is encoded.
"""

import os
import warnings
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from kenthash.data.headers import format_of, jpeg_work
from kenthash.errors import DataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".heic", ".heif"})

# The version of the path from a file to its code: raised when the same file, encoder and model would give another code.
# The change from PyTorch to ONNX graphs did not raise it: see `kenthash bench encode`, which compares their bits.
PIPELINE = "2"

PictureInput = Path | bytes | Image.Image  # a file, its content, or pixels that are at hand
Pixels = NDArray[np.uint8]  # [height, width, 3]
Resampling = Literal["bicubic", "bilinear"]

# 100 megapixels decode to 400 MB: beyond every phone's stitched panorama, below what hurts a laptop.
MAX_PIXELS = 100_000_000
MAX_FILE = 1 << 28  # bytes of a picture file

# Only these decoders are tried, whatever a file is called: others of Pillow's are seldom tried or start programs (EPS).
FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP"]

try:  # HEIC is an optional extra: pip install 'kenthash[heif]'
    from pillow_heif import register_heif_opener

    register_heif_opener()
    FORMATS.append("HEIF")
except ImportError:
    pass

# Pillow's remarks on size and damaged EXIF are judged below. A filter for the duration of a call would not do:
# warnings.catch_warnings changes state that all threads share, and pictures are opened in threads.
warnings.filterwarnings("ignore", module=r"PIL\.")

NO_MEMORY = "takes more memory to decode than is allowed"
LONGEST = 16  # times its shorter side: what a crop looks at of a very long picture


class BadPicture(DataError):
    """This one picture cannot be used; the others can."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.reason = reason


class TooLarge(BadPicture):
    """It has more pixels than are allowed."""


@dataclass(frozen=True)
class Square:
    """What an encoder takes: the whole picture squashed to a square, as the field does in evaluation, or with `crop`
    the middle of it, as in training."""

    size: int  # of a side, in pixels
    resample: Resampling = "bicubic"
    crop: bool = False


def to_square(source: PictureInput, square: Square, max_pixels: int = MAX_PIXELS) -> Pixels:
    """The pixels of a picture, uint8 [size, size, 3]. A Pillow image is taken at its full size, even if its file is a
    JPEG, which is otherwise decoded at a fraction of it."""
    if isinstance(source, Image.Image):
        picture = _on_white(_upright(source.copy()))
    else:
        picture = open_picture(source, square.size, max_pixels)
    size = square.size
    if not square.crop:
        return np.asarray(_resize(picture, size, size, square.resample))
    picture = _without_ends(picture)
    width, height = picture.size
    short = min(width, height)
    width, height = size * width // short, size * height // short
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = _resize(picture, width, height, square.resample)
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def open_picture(source: Path | bytes, shorter_side: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode the first frame of a picture to upright RGB, transparent parts on white.

    `shorter_side` lets a JPEG be decoded at a half, a quarter or an eighth of its size as long as its shorter side
    stays at least that: each pixel is then the mean of a block, and decoding takes a fraction of the time.
    """
    try:
        with Image.open(_checked(source), formats=FORMATS) as picture:
            width, height = picture.size
            if width * height > max_pixels:
                raise Image.DecompressionBombError
            if shorter_side is not None and picture.format in ("JPEG", "MPO"):
                picture.draft("RGB", (shorter_side, shorter_side))
            picture.load()
            return _on_white(_upright(picture))
    except Exception as error:  # decoders raise anything on a hostile file: struct.error, SyntaxError, EOFError ...
        name = str(source) if isinstance(source, Path) else "picture"
        if isinstance(error, Image.DecompressionBombError):
            raise TooLarge(name, f"more than the {max_pixels // 10**6} megapixels allowed") from error
        raise BadPicture(name, _reason(source, error)) from error


def _checked(source: Path | bytes) -> Path | BytesIO:
    """What is to be decoded, if a look at the outside finds nothing against it."""
    content = source if isinstance(source, bytes) else b""
    if isinstance(source, Path):
        with source.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_FILE:
                raise ValueError(f"a file of more than {MAX_FILE >> 20} MiB")
            if format_of(stream.read(16)) != "JPEG":
                return source
            stream.seek(0)
            content = stream.read(MAX_FILE)
    if format_of(content) == "JPEG":
        jpeg_work(content)  # or it is refused
    return BytesIO(content)


def _reason(source: Path | bytes, error: Exception) -> str:
    if isinstance(error, MemoryError):
        return NO_MEMORY
    if isinstance(error, UnidentifiedImageError):
        if isinstance(source, Path) and source.suffix.lower() in (".heic", ".heif") and "HEIF" not in FORMATS:
            return "HEIC pictures need an extra: pip install 'kenthash[heif]'"
        return "not a picture that can be decoded"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().split("\n")[0] or type(error).__name__


def _upright(picture: Image.Image) -> Image.Image:
    with suppress(Exception):  # damaged EXIF raises anything; the picture itself has been decoded and is good
        ImageOps.exif_transpose(picture, in_place=True)
    return picture


def _on_white(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):  # 16 bits of grey, which Pillow's own conversion would clip at 255, that is: white
        grey = np.asarray(picture).clip(0, 65535).astype(np.uint16) >> 8
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        seen = picture if picture.mode == "RGBA" else picture.convert("RGBA")  # which would copy all the same
        white = Image.new("RGB", seen.size, "white")
        white.paste(seen, mask=seen.getchannel("A"))
        return white
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _resize(picture: Image.Image, width: int, height: int, resample: Resampling) -> Image.Image:
    """What is more than six times too large is first averaged over blocks, as JPEG is when it is decoded."""
    kind = Image.Resampling.BICUBIC if resample == "bicubic" else Image.Resampling.BILINEAR
    return picture.resize((width, height), kind, reducing_gap=3.0)


def _without_ends(picture: Image.Image) -> Image.Image:
    """A picture that is very long, less what is far from its middle: a line of pixels would grow to gigabytes."""
    width, height = picture.size
    reach = LONGEST * min(width, height)
    reach += (max(width, height) - reach) % 2  # as much off at either end
    left, top = max(0, (width - reach) // 2), max(0, (height - reach) // 2)
    return picture.crop((left, top, width - left, height - top)) if left or top else picture
