"""Opening a picture that a stranger made: upright, RGB, bounded in memory, or refused in one line."""

import warnings
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from kenthash.errors import DataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".heic", ".heif"})

# 100 megapixels decode to 300 MB of RGB: beyond every phone's stitched panorama, below what hurts a laptop.
MAX_PIXELS = 100_000_000

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


class BadPicture(DataError):
    """This one picture cannot be used; the others can."""


def open_picture(source: Path | bytes, shorter_side: int | None = None) -> Image.Image:
    """Decode the first frame of a picture to upright RGB, transparent parts on white.

    `shorter_side` lets a JPEG be decoded at a half, a quarter or an eighth of its size as long as its shorter side
    stays at least that: each pixel is then the mean of a block, and decoding takes a fraction of the time.
    """
    name = source if isinstance(source, Path) else "picture"
    try:
        with Image.open(source if isinstance(source, Path) else BytesIO(source), formats=FORMATS) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if shorter_side is not None and picture.format in ("JPEG", "MPO"):
                picture.draft("RGB", (shorter_side, shorter_side))
            picture.load()
            return _on_white(_upright(picture))
    except Exception as error:  # decoders raise anything on a hostile file: struct.error, SyntaxError, EOFError ...
        raise BadPicture(f"{name}: {_reason(source, error)}") from error


def _reason(source: Path | bytes, error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError):
        return f"more than the {MAX_PIXELS // 10**6} megapixels allowed"
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
        seen = picture.convert("RGBA")
        white = Image.new("RGB", seen.size, "white")
        white.paste(seen, mask=seen.getchannel("A"))
        return white
    return picture if picture.mode == "RGB" else picture.convert("RGB")  # which would copy all the same
