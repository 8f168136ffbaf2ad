"""Files as cameras write them: their formats, previews of raw files, and what they say about a photo."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.ExifTags import GPS, IFD, Base

from components import need
from kenthash.data import pictures
from kenthash.data.pictures import BadPicture, Square, open_picture, square_with_facts
from kenthash.data.raw_files import raw_preview
from photos import photo

SQUARE = Square(32)


def jpeg(picture: Image.Image, **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=95, **options)
    return stream.getvalue()


def tags(orientation: int = 1) -> Image.Exif:
    """Vienna, in the summer of 2023."""
    exif = Image.Exif()
    exif[Base.Make], exif[Base.Model], exif[Base.Orientation] = "Google\0", "Pixel 7", orientation
    exif.get_ifd(IFD.Exif)[Base.DateTimeOriginal] = "2023:06:14 18:05:31"
    exif.get_ifd(IFD.GPSInfo).update(
        {
            GPS.GPSLatitudeRef: "N",
            GPS.GPSLatitude: (48.0, 12.0, 30.6),
            GPS.GPSLongitudeRef: "W",
            GPS.GPSLongitude: (16, 30, 0),
        }
    )
    return exif


def facts(source: Path | bytes) -> dict[str, object]:
    photo_facts: dict[str, object] = dict(square_with_facts(source, SQUARE)[1])
    assert len(str(photo_facts.pop("fingerprint"))) == 24
    return photo_facts


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif", "gif", "bmp", "avif", "heic"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    if suffix == "heic":
        need("pillow_heif")
    path, picture = tmp_path / f"a.{suffix}", photo(1, (64, 48))
    picture.save(path, quality=95)
    assert path.suffix in pictures.SUFFIXES
    pixels, photo_facts = square_with_facts(path, Square(16))
    expected = np.asarray(picture.resize((16, 16), Image.Resampling.BICUBIC), int)
    assert abs(pixels - expected).mean() < 12
    assert (photo_facts["width"], photo_facts["height"], photo_facts["orientation"]) == (64, 48, "landscape")


def test_facts_of_a_photo() -> None:
    photo_facts = facts(jpeg(photo(1, (80, 60)), exif=tags(orientation=6)))
    assert photo_facts == {
        "width": 60, "height": 80, "orientation": "portrait", "taken": "2023-06-14 18:05:31",
        "camera": "Google Pixel 7", "latitude": 48.2085, "longitude": -16.5,
    }  # fmt: skip


def test_impossible_facts_are_left_out() -> None:
    changes: list[dict[int, Any]] = [
        {GPS.GPSLatitude: (91.0, 0.0, 0.0)},
        {GPS.GPSLatitude: (0.0, 0.0, 0.0), GPS.GPSLongitude: (0.0, 0.0, 0.0)},
        {GPS.GPSLatitude: (48.0,)},
    ]
    for change in changes:
        exif = tags()
        exif.get_ifd(IFD.GPSInfo).update(change)
        assert not {"latitude", "longitude"} & facts(jpeg(photo(1, (80, 60)), exif=exif)).keys()
    exif = tags()
    exif.get_ifd(IFD.Exif)[Base.DateTimeOriginal] = "0000:00:00 00:00:00"
    exif[Base.Make] = exif[Base.Model] = "   "
    photo_facts = facts(jpeg(photo(1, (80, 60)), exif=exif))
    assert not {"taken", "camera"} & photo_facts.keys() and photo_facts["latitude"] == 48.2085
    assert facts(jpeg(photo(1, (80, 60)), exif=b"Exif\0\0" + b"\xff" * 40)).keys() == {"width", "height", "orientation"}


def tiff_raw(*previews: bytes, magic: bytes = b"MM\0*", exif: Image.Exif | None = None) -> bytes:
    """A raw file of the usual kind: the tags of a photo in the first directory, which points to a directory for each
    preview."""
    head = (exif or tags(orientation=6)).tobytes().removeprefix(b"Exif\0\0")
    assert head[:4] == b"MM\0*"
    at = struct.unpack_from(">I", head, 4)[0]
    (count,) = struct.unpack_from(">H", head, at)
    entries = head[at + 2 : at + 2 + 12 * count]
    content, places = head, []
    for preview in previews:
        start = len(content)
        content += preview
        places.append(len(content))
        content += struct.pack(">HHHIIHHIII", 2, 0x0201, 4, 1, start, 0x0202, 4, 1, len(preview), 0)
    table = len(content)
    content += struct.pack(f">{len(places)}I", *places)
    first = len(content)
    sub = struct.pack(">HHII", 0x014A, 4, len(places), table if len(places) > 1 else places[0])
    ordered = sorted([entries[i : i + 12] for i in range(0, len(entries), 12)] + [sub])
    content += struct.pack(">H", count + 1) + b"".join(ordered) + struct.pack(">I", 0)
    return magic + struct.pack(">I", first) + content[8:]


def lossless_jpeg(size: int) -> bytes:
    """The head of what some cameras keep their raw data in."""
    frame = struct.pack(">HBHHB", 8, 16, 48, 64, 0)
    return b"\xff\xd8\xff\xc3" + frame + b"\0" * size


def test_the_largest_preview_of_a_raw_file_is_shown(tmp_path: Path) -> None:
    large, small = jpeg(photo(1, (320, 240))), jpeg(photo(1, (64, 48)))
    fuji = b"FUJIFILMCCD-RAW ".ljust(84, b"\0") + struct.pack(">II", 92, len(large)) + large
    canon = (
        b"\0\0\0\x18ftypcrx \0\0\0\1" + b"\0" * 8 + struct.pack(">I", len(large) + 24) + b"PRVW" + b"\0" * 16 + large
    )
    for name, content in {
        "a.nef": tiff_raw(small, large, lossless_jpeg(1 << 20)),
        "a.CR2": tiff_raw(large),
        "a.orf": tiff_raw(small, large, magic=b"MMOR"),
        "a.raf": fuji,
        "a.cr3": canon,
    }.items():
        (tmp_path / name).write_bytes(content)
        assert raw_preview(content) == large
        picture = open_picture(tmp_path / name)
        photo_facts = facts(tmp_path / name)
        if name in ("a.raf", "a.cr3"):
            assert picture.size == (320, 240) and photo_facts["orientation"] == "landscape"
        else:  # upright by the tags of the raw file
            assert picture.size == (240, 320) and photo_facts["orientation"] == "portrait"
            assert (photo_facts["camera"], photo_facts["taken"]) == ("Google Pixel 7", "2023-06-14 18:05:31")


def test_a_raw_file_without_a_preview_is_refused(tmp_path: Path) -> None:
    good = tiff_raw(jpeg(photo(1, (64, 48))))
    endless = b"II*\0" + struct.pack("<I", 8) + struct.pack("<HI", 0, 8)  # a directory that follows itself
    for content in (
        tiff_raw(lossless_jpeg(4000)),
        b"II*\0",
        b"",
        good[: len(good) // 2],
        endless,
        b"FUJIFILM",
        b"\0" * 99,
    ):
        (tmp_path / "a.nef").write_bytes(content)
        with pytest.raises(BadPicture, match="without a preview"):
            open_picture(tmp_path / "a.nef")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "I;16", "CMYK"])
def test_strips_give_the_pixels_of_the_whole(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    for width, height in ((700, 500), (301, 1303), (20, 30)):
        if mode == "I;16":
            picture = Image.fromarray(rng.integers(0, 65536, (height, width), np.uint16))
        else:
            picture = Image.fromarray(rng.integers(0, 256, (height, width, 4), np.uint8))
            picture = picture.convert("RGB").quantize(64) if mode == "P" else picture.convert(mode)
        whole = pictures._on_white(picture).resize((64, 40), Image.Resampling.BICUBIC, reducing_gap=3.0)
        for pixels in (1, 5000, 10**7):
            monkeypatch.setattr(pictures, "STRIP", pixels)
            assert np.array_equal(np.asarray(pictures._resize(picture, 64, 40, "bicubic")), np.asarray(whole))


def test_what_takes_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By format, before it is decoded; a JPEG of the same size is decoded at a fraction of it."""
    monkeypatch.setattr(pictures, "MAX_DECODING", 40_000_000)
    picture, stream, large = Image.new("RGB", (2000, 2000)), io.BytesIO(), []
    picture.save(stream, "WEBP", method=0)
    with pytest.raises(BadPicture, match="more than the 2 megapixels allowed"):
        square_with_facts(stream.getvalue(), SQUARE)
    monkeypatch.setattr(pictures, "LARGE", 1_000_000)
    square_with_facts(jpeg(picture.resize((900, 900))), SQUARE, on_large=lambda: large.append("small"))
    square_with_facts(jpeg(picture, progressive=True), SQUARE, on_large=lambda: large.append("large"))
    assert large == ["large"]
