"""The preview that a camera puts into its raw files, a JPEG, and what the file says about the photo.

Most raw files are TIFF files, some with another magic number: directories of tags that are chained and nested. A
directory may point to a JPEG; the largest one is taken. Lossless JPEG, in which some cameras keep the raw data itself,
is no preview. Fuji's files begin with the place of the preview; Canon's CR3 files are boxes, one of which holds it.

Tags are those of TIFF 6.0 and DNG 1.7; RAF and CR3 are described by ExifTool's author and by lclevy/canon_cr3.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress

from PIL import Image

from kenthash.data.headers import is_lossy_jpeg

SUFFIXES = frozenset(
    {".cr2", ".cr3", ".nef", ".nrw", ".arw", ".dng", ".raf", ".orf", ".rw2", ".pef", ".srw"}
)  # fmt: skip
MAX_DIRECTORIES = 64
MAX_ENTRIES = 1000  # of a directory
SUB_DIRECTORIES = 0x014A
STRIPS = (0x0111, 0x0117)  # offsets and lengths
JPEG = (0x0201, 0x0202)
PANASONIC_JPEG = 0x002E  # of RW2: the value itself is the JPEG
NUMBERS = {3: "H", 4: "I", 13: "I"}  # types of values that are offsets or lengths

Entry = tuple[int, int, bytes]  # type, number of values, values or their offset


def raw_preview(content: bytes) -> bytes:
    """The largest preview in a raw file; ValueError where there is none."""
    if content.startswith(b"FUJIFILM"):
        candidates = [struct.unpack_from(">II", content, 84)] if len(content) >= 92 else []
    elif content[4:8] == b"ftyp":
        candidates = list(_canon_previews(content))
    else:
        candidates = list(_tiff_previews(content))
    previews = [content[at : at + size] for at, size in candidates if 0 < at < at + size <= len(content)]
    previews = [preview for preview in previews if is_lossy_jpeg(preview)]
    if not previews:
        raise ValueError("a raw file without a preview that can be read: convert it, or save a JPEG beside it")
    return max(previews, key=len)


def raw_exif(content: bytes) -> Image.Exif:
    """The tags about the photo; those of a preview, where they stand there alone."""
    exif = Image.Exif()
    with suppress(Exception):  # damaged tags raise anything
        if content[4:8] == b"ftyp":
            for name in (b"CMT1", b"CMT2"):  # the main tags, then those of the exposure
                at, size = _box(content, name)
                part = Image.Exif()
                part.load(b"Exif\0\0" + content[at : at + size])
                exif.update(part)
        elif not content.startswith(b"FUJIFILM"):
            order = content[:2]
            exif.load(b"Exif\0\0" + order + (b"*\0" if order == b"II" else b"\0*") + content[4:])
    return exif


def _box(content: bytes, name: bytes) -> tuple[int, int]:
    """Where the content of the first box of this name is, and its length."""
    at = content.find(name, 4, 1 << 20)
    if at < 0:
        raise ValueError("no such box")
    return at + 4, struct.unpack_from(">I", content, at - 4)[0] - 8


def _canon_previews(content: bytes) -> Iterator[tuple[int, int]]:
    for name in (b"PRVW", b"THMB"):
        with suppress(ValueError, struct.error):
            at, size = _box(content, name)
            start = content.find(b"\xff\xd8\xff", at, at + 64)  # after a few numbers
            if start > 0:
                yield start, at + size - start


def _tiff_previews(content: bytes) -> Iterator[tuple[int, int]]:
    """Offsets and lengths of what the directories of a TIFF file point to."""
    order = {b"II": "<", b"MM": ">"}.get(content[:2])
    if order is None or len(content) < 8:
        return
    waiting, seen = [struct.unpack_from(order + "I", content, 4)[0]], set[int]()
    while waiting and len(seen) < MAX_DIRECTORIES:
        at = waiting.pop()
        if at in seen or not 8 <= at <= len(content) - 2:
            continue
        seen.add(at)
        with suppress(struct.error):
            tags, following = _directory(content, order, at)
            waiting += [following, *_numbers(content, order, tags.get(SUB_DIRECTORIES))]
            for where, length in (JPEG, STRIPS):
                starts, sizes = (_numbers(content, order, tags.get(tag)) for tag in (where, length))
                if len(starts) == len(sizes) == 1:
                    yield starts[0], sizes[0]
            if PANASONIC_JPEG in tags:
                _, size, value = tags[PANASONIC_JPEG]
                yield struct.unpack(order + "I", value)[0], size


def _directory(content: bytes, order: str, at: int) -> tuple[dict[int, Entry], int]:
    """Entries by tag, and where the next directory is."""
    (count,) = struct.unpack_from(order + "H", content, at)
    tags: dict[int, Entry] = {}
    for number in range(min(count, MAX_ENTRIES)):
        tag, kind, values, value = struct.unpack_from(order + "HHI4s", content, at + 2 + 12 * number)
        tags[tag] = kind, values, value
    return tags, struct.unpack_from(order + "I", content, at + 2 + 12 * count)[0]


def _numbers(content: bytes, order: str, entry: Entry | None) -> list[int]:
    if entry is None or entry[0] not in NUMBERS or entry[1] > MAX_ENTRIES:
        return []
    kind, count, value = entry
    form = f"{order}{count}{NUMBERS[kind]}"
    if struct.calcsize(form) <= len(value):
        return list(struct.unpack_from(form, value))
    return list(struct.unpack_from(form, content, struct.unpack(order + "I", value)[0]))
