"""Opening a picture that a stranger made: upright, RGB, bounded in memory, or refused in one line."""

import warnings
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageOps

from kenthash.errors import DataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".heic", ".heif"})

# 100 megapixels decode to 300 MB of RGB: beyond every phone's stitched panorama, below what hurts a laptop.
MAX_PIXELS = 100_000_000

try:  # HEIC is an optional extra: pip install 'kenthash[heif]'
    from pillow_heif import register_heif_opener

    register_heif_opener()
except ImportError:
    pass


class BadPicture(DataError):
    """This one picture cannot be used; the others can."""


def open_picture(source: Path | bytes, shorter_side: int | None = None) -> Image.Image:
    """Decode the first frame of a picture to upright RGB, transparent parts on white.

    `shorter_side` lets a JPEG be decoded at a fraction of its size as long as its shorter side stays at least twice
    that: enough for any later resize, several times faster for camera photos.
    """
    name = source if isinstance(source, Path) else "picture"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's own size warning and damaged-EXIF remarks: judged below
            with Image.open(source if isinstance(source, Path) else BytesIO(source)) as picture:
                width, height = picture.size
                if width * height > MAX_PIXELS:
                    raise BadPicture(f"{name}: {width}x{height} pixels, more than the {MAX_PIXELS // 10**6} megapixels allowed")
                if shorter_side is not None and picture.format == "JPEG":
                    picture.draft("RGB", (2 * shorter_side, 2 * shorter_side))
                picture.load()
                return _on_white(ImageOps.exif_transpose(picture))
    except BadPicture:
        raise
    except Exception as error:  # a decoder may raise anything on a hostile file: struct.error, SyntaxError, EOFError ...
        reason = "not a picture that can be decoded" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise BadPicture(f"{name}: {reason or type(error).__name__}") from error


def _on_white(picture: Image.Image) -> Image.Image:
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        seen = picture.convert("RGBA")
        white = Image.new("RGBA", seen.size, "white")
        return Image.alpha_composite(white, seen).convert("RGB")
    return picture.convert("RGB")
