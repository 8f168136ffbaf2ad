"""Opening a picture from anywhere: upright, RGB, bounded in memory, or refused in one line.

`to_square` is the one way from a picture to the pixels that an encoder takes. Whatever encodes pictures goes through
it, so that a file has the same code wherever it is encoded.
"""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError, features
from PIL.ExifTags import Base

from kenthash.data import raw_files
from kenthash.data.fingerprint import fingerprint
from kenthash.data.headers import format_of, jpeg_work
from kenthash.data.photo_facts import Facts, photo_facts
from kenthash.errors import DataError

HEIF_SUFFIXES = frozenset({".heic", ".heif"})
SUFFIXES = (
    frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif"})
    | HEIF_SUFFIXES
    | raw_files.SUFFIXES
)

# The version of the path from a file to its code: raised when the same file, encoder and model would give another code.
# The change from PyTorch to ONNX graphs did not raise it: see `kenthash bench encode`, which compares their bits.
PIPELINE = "2"

PictureInput = Path | bytes | Image.Image  # a file, its content, or pixels that are at hand
Pixels = NDArray[np.uint8]  # [height, width, 3]
Resampling = Literal["bicubic", "bilinear"]

MAX_PIXELS = 210_000_000  # more than phones have; how many of them are decoded depends on MAX_DECODING
MAX_FILE = 1 << 28  # bytes of a picture file

# Bytes of memory per pixel that decoders take, by format, measured with pictures of 20 to 100 megapixels.
DECODING = {"WEBP": 16, "AVIF": 10, "HEIF": 8, "TIFF": 7}  # others take 5
MAX_DECODING = 640_000_000  # bytes of memory that a picture may take: an index is filled in less than a GB
LARGE = 100_000_000  # bytes of memory of a picture of which only one should be decoded at a time

# Only these decoders are tried, whatever a file is called: others of Pillow's are seldom tried or start programs (EPS).
FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", *(["AVIF"] if features.check("avif") else [])]

try:  # HEIC is an optional extra: pip install 'kenthash[heif]'
    from pillow_heif import register_heif_opener

    register_heif_opener()
    FORMATS.append("HEIF")
except ImportError:
    pass

if Image.MAX_IMAGE_PIXELS is not None:  # Pillow refuses pictures of twice as many by itself
    Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, MAX_PIXELS // 2)

# Pillow's remarks on size and damaged EXIF are judged below. A filter for the duration of a call would not do:
# warnings.catch_warnings changes state that all threads share, and pictures are opened in threads.
warnings.filterwarnings("ignore", module=r"PIL\.")

NO_MEMORY = "takes more memory to decode than is allowed"
GAP = 3.0  # how many times the wanted size is left by averaging over blocks, at least
STRIP = 4_000_000  # pixels that are converted to RGB at a time
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
    return square_with_facts(source, square, max_pixels)[0]


def square_with_facts(
    source: PictureInput, square: Square, max_pixels: int = MAX_PIXELS, on_large: Callable[[], object] = lambda: None
) -> tuple[Pixels, Facts]:
    """As `to_square`, with what the file says about itself, and the picture's fingerprint. `on_large` is called before
    a large one is decoded."""
    if isinstance(source, Image.Image):
        picture, facts = _upright(source.copy()), photo_facts(source.size, source.getexif())
    else:
        picture, facts = _open(source, square.size, max_pixels, on_large)
    pixels = _squared(picture, square)
    return pixels, {**facts, "fingerprint": fingerprint(pixels)}


def _squared(picture: Image.Image, square: Square) -> Pixels:
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
    return _on_white(_open(source, shorter_side, max_pixels)[0])


def _open(
    source: Path | bytes, shorter_side: int | None, max_pixels: int, on_large: Callable[[], object] = lambda: None
) -> tuple[Image.Image, Facts]:
    """The first frame, upright, in the mode that it is stored in. The preview of a raw file is described with its own
    size."""
    try:
        content, raw_exif = _checked(source)
        with Image.open(content, formats=FORMATS) as picture:
            width, height = picture.size
            exif = _exif(picture, raw_exif)
            facts = photo_facts((width, height), exif)
            per_pixel = _bytes_per_pixel(picture, exif, shorter_side)
            max_pixels = min(max_pixels, MAX_DECODING // per_pixel)
            if width * height > max_pixels:
                raise Image.DecompressionBombError
            if width * height * per_pixel > LARGE:
                on_large()
            if shorter_side is not None and picture.format in ("JPEG", "MPO"):
                picture.draft("RGB", (shorter_side, shorter_side))
            picture.load()
            return _upright(picture), facts
    except Exception as error:  # decoders raise anything on a hostile file: struct.error, SyntaxError, EOFError ...
        name = str(source) if isinstance(source, Path) else "picture"
        if isinstance(error, Image.DecompressionBombError):
            raise TooLarge(name, f"more than the {max_pixels // 10**6} megapixels allowed") from error
        raise BadPicture(name, _reason(source, error)) from error


def _checked(source: Path | bytes) -> tuple[Path | BytesIO, Image.Exif | None]:
    """What is to be decoded, if a look at the outside finds nothing against it; of a raw file, also its tags."""
    content, exif = source if isinstance(source, bytes) else b"", None
    if isinstance(source, Path):
        is_raw = source.suffix.lower() in raw_files.SUFFIXES
        with source.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_FILE:
                raise ValueError(f"a file of more than {MAX_FILE >> 20} MiB")
            if format_of(stream.read(16)) != "JPEG" and not is_raw:
                return source, None
            stream.seek(0)
            content = stream.read(MAX_FILE)
        if is_raw and format_of(content) != "JPEG":
            exif = raw_files.raw_exif(content)
            content = raw_files.raw_preview(content)
    if format_of(content) == "JPEG":
        jpeg_work(content)  # or it is refused
    return BytesIO(content), exif


def _bytes_per_pixel(picture: Image.Image, exif: Image.Exif, shorter_side: int | None) -> int:
    """How much memory it takes to decode a picture and to turn it upright."""
    if picture.format in ("JPEG", "MPO") and shorter_side is not None:  # decoded at a fraction of its size
        return 6 if "progressive" in picture.info else 1  # the one keeps the coefficients of all pixels
    turned = 4 if exif.get(Base.Orientation, 1) != 1 else 0
    return DECODING.get(picture.format or "", 5) + turned


def _exif(picture: Image.Image, raw_exif: Image.Exif | None) -> Image.Exif:
    """The tags of a picture. A preview that does not say how it is to be turned is turned as its raw file says."""
    exif = Image.Exif()
    with suppress(Exception):  # damaged EXIF raises anything
        exif = Image.Image.getexif(picture)  # that of PNG would decode the picture before it is checked
    if raw_exif is not None and Base.Orientation in raw_exif and Base.Orientation not in exif:
        exif[Base.Orientation] = raw_exif[Base.Orientation]
    return exif if raw_exif is None or Base.Model in exif else raw_exif


def _reason(source: Path | bytes, error: Exception) -> str:
    if isinstance(error, MemoryError):
        return NO_MEMORY
    if isinstance(error, UnidentifiedImageError):
        if isinstance(source, Path) and source.suffix.lower() in HEIF_SUFFIXES and "HEIF" not in FORMATS:
            return "HEIC pictures need an extra: pip install 'kenthash[heif]'"
        return "not a picture that can be decoded"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    message = str(error).strip().split("\n")[0] or type(error).__name__
    # What we refuse ourselves is a ValueError; the rest is a decoder's own words, which alone do not say what is wrong.
    return message if isinstance(error, ValueError) else f"damaged or cut off ({message})"


def _upright(picture: Image.Image) -> Image.Image:
    with suppress(Exception):  # damaged EXIF raises anything; the picture itself has been decoded and is good
        ImageOps.exif_transpose(picture, in_place=True)
    return picture


def _on_white(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):  # 16 bits of grey, which Pillow's own conversion would clip at 255, that is: white
        grey = np.asarray(picture).clip(0, 65535).astype(np.uint16) >> 8
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        rgba = picture if picture.mode == "RGBA" else picture.convert("RGBA")  # which would copy all the same
        white = Image.new("RGB", rgba.size, "white")
        white.paste(rgba, mask=rgba.getchannel("A"))
        return white
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _resize(picture: Image.Image, width: int, height: int, resample: Resampling) -> Image.Image:
    """RGB of this size. What is more than six times too large is first averaged over blocks, as JPEG is when it is
    decoded.

    A picture that is not RGB yet is converted strip by strip, so that there are no further copies of a large one. The
    result is the same: Pillow's own `resize` with `reducing_gap` does these steps with the picture as a whole.
    """
    kind = Image.Resampling.BICUBIC if resample == "bicubic" else Image.Resampling.BILINEAR
    if picture.mode == "RGB" and "transparency" not in picture.info:
        return picture.resize((width, height), kind, reducing_gap=GAP)
    from_width, from_height = picture.size
    factors = int(from_width / width / GAP) or 1, int(from_height / height / GAP) or 1
    averaged = Image.new("RGB", (-(-from_width // factors[0]), -(-from_height // factors[1])))
    rows = factors[1] * max(1, STRIP // (from_width * factors[1]))
    for top in range(0, from_height, rows):
        strip = _on_white(picture.crop((0, top, from_width, min(top + rows, from_height))))
        averaged.paste(strip.reduce(factors), (0, top // factors[1]))
    return averaged.resize((width, height), kind, (0, 0, from_width / factors[0], from_height / factors[1]))


def _without_ends(picture: Image.Image) -> Image.Image:
    """A picture that is very long, less what is far from its middle: a line of pixels would grow to gigabytes."""
    width, height = picture.size
    reach = LONGEST * min(width, height)
    reach += (max(width, height) - reach) % 2  # as much off at either end
    left, top = max(0, (width - reach) // 2), max(0, (height - reach) // 2)
    return picture.crop((left, top, width - left, height - top)) if left or top else picture
