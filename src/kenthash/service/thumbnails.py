"""Small upright pictures, made when first asked for and kept in memory up to a limit."""

import hashlib
from contextlib import suppress
from pathlib import Path

from cachetools import LRUCache

from kenthash.data.headers import format_of
from kenthash.data.pictures import BadPicture
from kenthash.service.files import Picture
from kenthash.service.problems import Problem
from kenthash.service.workers import Decoders

TYPES = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif", "BMP": "image/bmp",
         "HEIF": "image/heif"}  # fmt: skip
GONE = "the picture cannot be opened any more: bring the index up to date"


class Thumbnails:
    """Used in the event loop only: the cache has no lock."""

    def __init__(self, max_bytes: int) -> None:
        self.cache: LRUCache[tuple[Picture, int], bytes] = LRUCache(max_bytes, getsizeof=_cached_size)

    def cached(self, picture: Picture, size: int) -> bytes | None:
        """A problem where it is known that there will be none: such a picture is not tried again and again."""
        found = self.cache.get((picture, size))
        if found == b"":
            raise Problem("not-found", GONE)
        return found

    async def make(self, decoders: Decoders, picture: Picture, size: int) -> bytes:
        """A JPEG whose longer side is `size`, or less if the picture's is. Of a file that has changed the old one is
        not found, since its time and size are part of the key."""
        try:
            made = await decoders.thumbnail(picture.path, size)
        except BadPicture as error:
            self._keep(picture, size, b"")
            raise Problem("not-found", GONE) from error
        self._keep(picture, size, made)
        return made

    def _keep(self, picture: Picture, size: int, made: bytes) -> None:
        with suppress(ValueError):  # larger than the whole cache
            self.cache[picture, size] = made


def _cached_size(thumbnail: bytes) -> int:
    return len(thumbnail) + 500  # with its key


def etag(picture: Picture, size: int | str) -> str:
    about = f"{picture.path}\0{picture.mtime_ns}\0{picture.size}\0{size}"
    return f'"{hashlib.sha256(about.encode("utf-8", "surrogateescape")).hexdigest()[:32]}"'


def media_type(path: Path) -> str:
    """By what a file is, not by what it is called; a problem where it is no picture."""
    try:
        with path.open("rb") as stream:
            kind = format_of(stream.read(16))
    except OSError as error:
        raise Problem("not-found", GONE) from error
    if kind is None:
        raise Problem("not-found", GONE)
    return TYPES[kind]
