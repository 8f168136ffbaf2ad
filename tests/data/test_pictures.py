"""Pictures as strangers make them, written with Pillow and read back through `open_picture`."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from components import need
from kenthash.data.pictures import BadPicture, Square, open_picture, to_square


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def corner_picture() -> Image.Image:
    """40x20, white, with a black top left quarter."""
    picture = Image.new("RGB", (40, 20), "white")
    picture.paste("black", (0, 0, 20, 10))
    return picture


# Where the black quarter of the stored picture must be seen, by EXIF orientation (rows, columns), and the size seen.
@pytest.mark.parametrize(
    ("orientation", "place", "size"),
    [
        (1, ("top", "left"), (40, 20)),
        (2, ("top", "right"), (40, 20)),
        (3, ("bottom", "right"), (40, 20)),
        (4, ("bottom", "left"), (40, 20)),
        (5, ("top", "left"), (20, 40)),
        (6, ("top", "right"), (20, 40)),
        (7, ("bottom", "right"), (20, 40)),
        (8, ("bottom", "left"), (20, 40)),
    ],
)
def test_exif_rotation_is_honoured(orientation: int, place: tuple[str, str], size: tuple[int, int]) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    seen = open_picture(encoded(corner_picture(), "JPEG", quality=95, exif=exif))
    assert seen.size == size
    grey = np.asarray(seen.convert("L"))
    row = grey.shape[0] // 4 if place[0] == "top" else 3 * grey.shape[0] // 4
    column = grey.shape[1] // 4 if place[1] == "left" else 3 * grey.shape[1] // 4
    assert grey[row, column] < 60
    assert grey.mean() > 170  # the three other quarters are white


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_damaged_exif_does_not_cost_the_picture(kind: str) -> None:
    seen = open_picture(encoded(corner_picture(), kind, exif=b"Exif\0\0" + b"\xff" * 40))
    assert seen.size == (40, 20) and np.asarray(seen)[5, 5, 0] < 60


def test_gif_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "lime")]
    seen = open_picture(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert seen.mode == "RGB"
    assert seen.getpixel((4, 4)) == (255, 0, 0)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_are_white(mode: str) -> None:
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    clear.paste((0, 0, 0, 255), (0, 0, 4, 8))
    clear.paste((0, 0, 0, 127), (4, 0, 8, 4))
    if mode == "P":
        picture = Image.new("P", (8, 8), 0)
        picture.putpalette([0, 0, 0, 10, 20, 30])
        picture.paste(1, (4, 4, 8, 8))
        data = encoded(picture, "PNG", transparency=1)
    else:
        data = encoded(clear.convert(mode), "PNG")
    seen = open_picture(data)
    assert seen.mode == "RGB"
    assert seen.getpixel((1, 1)) == (0, 0, 0)
    assert seen.getpixel((6, 6)) == (255, 255, 255)
    if mode != "P":
        assert np.asarray(seen)[1, 6, 0] == pytest.approx(128, abs=1)


def test_16_bit_grey_keeps_its_shades() -> None:
    ramp = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
    seen = np.asarray(open_picture(encoded(Image.fromarray(ramp), "PNG")))
    assert seen[0].tolist() == [[0] * 3, [1] * 3, [128] * 3, [255] * 3]


def test_cmyk_jpeg_keeps_its_colours() -> None:
    seen = open_picture(encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95), shorter_side=8)
    red, green, blue = np.asarray(seen)[4, 4]
    assert red > 240 and green < 15 and blue < 15


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP"])
def test_lossless_formats_come_back_exactly(kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(pixels), kind, **({"lossless": True} if kind == "WEBP" else {}))
    assert np.array_equal(np.asarray(open_picture(data)), pixels)


def test_heic() -> None:
    need("pillow_heif")
    seen = open_picture(encoded(corner_picture().resize((160, 80)), "HEIF", quality=95))
    assert seen.size == (160, 80)
    grey = np.asarray(seen.convert("L"))
    assert grey[20, 40] < 40 and grey[60, 120] > 215


def test_shorter_side_decodes_at_a_fraction_that_is_not_below_it() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 900, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), "JPEG")
    assert open_picture(data, shorter_side=100).size == (225, 150)
    assert open_picture(data, shorter_side=300).size == (450, 300)
    assert open_picture(data, shorter_side=301).size == (900, 600)
    assert open_picture(data).size == (900, 600)


@pytest.mark.parametrize("shorter_side", [None, 64])
def test_truncated_jpeg_is_refused(tmp_path: Path, shorter_side: int | None) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    path = tmp_path / "cut.jpg"
    path.write_bytes(encoded(Image.fromarray(noise), "JPEG")[:20_000])
    with pytest.raises(BadPicture, match=r"cut\.jpg: damaged or cut off \(.*truncated"):
        open_picture(path, shorter_side)


def png_that_claims(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


# 3,600 megapixels is beyond Pillow's own bound; 144 is below that and more than a PNG's may take in memory.
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("side", "allowed"), [(60_000, 210), (12_000, 128)])
def test_decompression_bomb_is_refused(side: int, allowed: int) -> None:
    with pytest.raises(BadPicture, match=f"more than the {allowed} megapixels allowed"):
        open_picture(png_that_claims(side, side))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_the_largest_photos_of_phones_are_decoded() -> None:
    """Of 200 megapixels, more than Pillow decodes by itself; a JPEG takes little memory at a fraction of its size."""
    photo = encoded(Image.new("L", (16_320, 12_240), 99), "JPEG")
    assert (to_square(photo, Square(8)) == 99).all()


@pytest.mark.parametrize("content", [b"just some words\n", b"", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"])
def test_what_is_not_a_picture_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "words.jpg"
    path.write_bytes(content)
    with pytest.raises(BadPicture) as refused:
        open_picture(path)
    assert str(refused.value) == f"{path}: not a picture that can be decoded"


def test_missing_file_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadPicture) as refused:
        open_picture(tmp_path / "gone.jpg")
    assert str(refused.value) == f"{tmp_path / 'gone.jpg'}: No such file or directory"
