"""Small upright pictures, made when first asked for and kept in memory up to a limit."""

import hashlib
from io import BytesIO
from pathlib import Path

from PIL import Image

from kenthash.data.pictures import FORMATS, BadPicture, open_picture
from kenthash.search.folder import MAX_FILE
from kenthash.service.files import Picture
from kenthash.service.lru import LRU
from kenthash.service.problems import Problem

QUALITY = 82
TYPES = {"JPEG": "image/jpeg", "MPO": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif",
         "BMP": "image/bmp", "HEIF": "image/heif"}  # fmt: skip


class Thumbnails:
    def __init__(self, most: int) -> None:
        self.cache: LRU[bytes] = LRU(most)

    def cached(self, picture: Picture, size: int) -> bytes | None:
        return self.cache.get((picture, size))

    def make(self, picture: Picture, size: int) -> bytes:
        """A JPEG whose longer side is `size`, or less if the picture's is. Of a file that has changed the old one is
        not found, since its time and size are part of the key."""
        if picture.size > MAX_FILE:
            raise Problem("too-large", f"the picture has more than {MAX_FILE >> 20} MiB")
        try:
            image = open_picture(picture.path, size)
        except BadPicture as error:
            raise Problem("not-found", "the picture cannot be opened any more: bring the index up to date") from error
        image.thumbnail((size, size), Image.Resampling.LANCZOS)
        stream = BytesIO()
        image.save(stream, "JPEG", quality=QUALITY)
        made = stream.getvalue()
        self.cache.put((picture, size), made, len(made) + 500)
        return made


def etag(picture: Picture, size: int | str) -> str:
    about = f"{picture.path}\0{picture.mtime_ns}\0{picture.size}\0{size}"
    return f'"{hashlib.sha256(about.encode("utf-8", "surrogateescape")).hexdigest()[:32]}"'


def media_type(path: Path) -> str:
    """By what a file is, not by what it is called; a problem where it is no picture."""
    try:
        with Image.open(path, formats=FORMATS) as picture:
            return TYPES[str(picture.format)]
    except Exception as error:  # decoders raise anything on a hostile file
        raise Problem("not-found", "the picture cannot be opened any more: bring the index up to date") from error
