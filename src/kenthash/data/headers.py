"""The format of a picture file and the work to decode it, read from its header without a decoder."""

import re
import struct
from collections.abc import Iterator

# A progressive JPEG comes in about ten scans, and each goes through the whole picture: with 75 bytes per scan, a file
# of megabytes would take hours. Segments (comments, EXIF, tables) are read one by one, before the size is known.
MAX_SCANS, MAX_SEGMENTS = 100, 10_000
UNKNOWN = 50_000_000  # pixels, where the size is not at a fixed place in the header


def format_of(head: bytes) -> str | None:
    """The format, as Pillow names it, of a file that begins with these 16 bytes or more; None of no picture."""
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if head.startswith(b"BM"):
        return "BMP"
    if head.startswith((b"II*\0", b"MM\0*")):
        return "TIFF"
    if head[4:8] == b"ftyp" and head[8:12] in (b"avif", b"avis"):
        return "AVIF"
    if head[4:8] == b"ftyp" and head[8:12] in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"):
        return "HEIF"
    return None


def expected_work(content: bytes) -> int:
    """How many pixels a decoder may have to go through, by its header, and some for each byte that it has to
    read: enough to put what is quickly decoded before what is not."""
    if format_of(content) == "JPEG":
        try:
            pixels = jpeg_work(content)
        except ValueError:  # it will be refused
            return 0
    else:
        width, height = _size(content)
        pixels = abs(width * height)
    return pixels + 4 * len(content)


def jpeg_work(content: bytes) -> int:
    """The number of a JPEG's pixels times that of its scans; ValueError where it has too many scans or segments.

    A walk from marker to marker, as decoders walk.
    """
    pixels = 0
    for kind, at in _segments(content):
        if kind in FRAMES:
            pixels = int.from_bytes(content[at + 3 : at + 5]) * int.from_bytes(content[at + 5 : at + 7])
        elif kind == SCAN:
            break
    else:
        return pixels
    # Quick, and never too few: bytes that look so elsewhere (a film behind the picture) can only make it too many.
    scans = content.count(b"\xff" + SCAN)
    if scans > MAX_SCANS:
        scans = 0
        for kind, _ in _segments(content):
            scans += kind == SCAN
            if scans > MAX_SCANS:
                raise ValueError(f"a JPEG of more than {MAX_SCANS} scans, where about ten are usual")
    return scans * pixels


MARKER = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])")  # neither a byte 255 of a scan's data nor a restart in it
FRAMES = {bytes([0xC0 + kind]) for kind in range(16) if kind not in (4, 8, 12)}  # the segments that tell the size
LOSSY_FRAMES = (b"\xc0", b"\xc1", b"\xc2")
SCAN, END = b"\xda", b"\xd9"


def _segments(content: bytes) -> Iterator[tuple[bytes, int]]:
    """The kinds of a JPEG's segments, and where their lengths stand."""
    at = 2
    for _ in range(MAX_SEGMENTS):
        marker = MARKER.search(content, at)
        if marker is None or marker[1] == END:
            return
        at = marker.end()
        if marker[1] not in (b"\x01", b"\xd8"):  # which have no length
            yield marker[1], at
            at += max(2, int.from_bytes(content[at : at + 2]))
    raise ValueError(f"a JPEG of more than {MAX_SEGMENTS:,} segments")


def _size(content: bytes) -> tuple[int, int]:
    """Width and height of what is not a JPEG."""
    head = content[:32].ljust(32, b"\0")
    size: tuple[int, int] = (UNKNOWN, 1)
    match format_of(content):
        case "PNG":
            size = struct.unpack_from(">II", head, 16)
        case "GIF":
            size = struct.unpack_from("<HH", head, 6)
        case "BMP":
            size = struct.unpack_from("<ii", head, 18)
        case "WEBP" if head[12:16] == b"VP8X":
            size = int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
        case "WEBP" if head[12:16] == b"VP8L":
            packed_size = int.from_bytes(head[21:25], "little")
            size = (packed_size & 0x3FFF) + 1, (packed_size >> 14 & 0x3FFF) + 1
        case "WEBP":
            width, height = struct.unpack_from("<HH", head, 26)
            size = width & 0x3FFF, height & 0x3FFF
    return size


def is_lossy_jpeg(content: bytes) -> bool:
    """Whether it begins as a JPEG of the kinds that show a picture: not lossless, in which cameras keep raw data."""
    if format_of(content) != "JPEG":
        return False
    try:
        frames = (kind for kind, _ in _segments(content) if kind in FRAMES)
        return next(frames, b"") in LOSSY_FRAMES
    except ValueError:
        return False
