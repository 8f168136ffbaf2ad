"""Pictures: the file of an item, decoding in processes that can be ended, and thumbnails in memory.

Only a file in a folder that was indexed is shown, wherever links lead (see `search.roots`). Items that were added in
another way may have the path of a file in their metadata, which is shown if it is in its folder. The path comes from
whoever made the index: requests cannot set it.
"""

import asyncio
import hashlib
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cachetools import LRUCache

from kenthash.data.decoding import DecoderPool
from kenthash.data.headers import format_of
from kenthash.data.pictures import SUFFIXES, BadPicture, Pixels, Square
from kenthash.data.raw_files import SUFFIXES as RAW_SUFFIXES
from kenthash.search.engine import Item
from kenthash.search.folders.roots import Roots
from kenthash.service.errors import ApiError, Overloaded

T = TypeVar("T")

MEDIA_TYPES = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif", "BMP": "image/bmp",
               "TIFF": "image/tiff", "AVIF": "image/avif", "HEIF": "image/heif"}  # fmt: skip
UNREADABLE = "the picture can no longer be opened: update the index with `kenthash index add`"


@dataclass(frozen=True)
class ServedPicture:
    path: Path
    size: int
    mtime_ns: int

    def etag(self, variant: int | str) -> str:
        identity = f"{self.path}\0{self.mtime_ns}\0{self.size}\0{variant}"
        return f'"{hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]}"'

    def media_type(self) -> str:
        """By the content of the file, not by its name; an error where it is not a picture."""
        try:
            with self.path.open("rb") as stream:
                kind = format_of(stream.read(16))
        except OSError as error:
            raise ApiError("not-found", UNREADABLE) from error
        if kind != "JPEG" and self.path.suffix.lower() in RAW_SUFFIXES:
            return "application/octet-stream"
        if kind is None:
            raise ApiError("not-found", UNREADABLE)
        return MEDIA_TYPES[kind]


def served_picture(item: Item, roots: Roots, allowed: tuple[Path, ...]) -> ServedPicture:
    """The file of an item's picture; an error where it has none, or none that may be shown."""
    recorded = roots.path_of(item.id, item.metadata)
    if recorded is None:
        raise ApiError("not-found", "this item has no picture")
    root = roots.of_id(item.id) if "path" not in item.metadata else None
    try:
        path = recorded.resolve(strict=True)
        folder = (root.path if root is not None else _old_folder(item.id, recorded)).resolve(strict=True)
        stat = path.stat()
        folders = [folder.resolve() for folder in allowed]
    except (OSError, ValueError, RuntimeError) as error:
        detail = "the file of the picture no longer exists: update the index with `kenthash index add`"
        raise ApiError("not-found", detail) from error
    inside = path.is_relative_to(folder) and (not folders or any(path.is_relative_to(folder) for folder in folders))
    if not recorded.is_absolute() or not inside or not path.is_file() or path.suffix.lower() not in SUFFIXES:
        raise ApiError("not-found", "the picture is not in a folder that was indexed")
    return ServedPicture(path, stat.st_size, stat.st_mtime_ns)


def _old_folder(id: str, path: Path) -> Path:
    """The indexed folder of an item whose own path is recorded: of version 0.1.0, or added in another way."""
    parts = Path(id).parts
    if len(parts) > 1 and path.parts[-len(parts) :] == parts:
        return Path(*path.parts[: len(path.parts) - len(parts) + 1])
    return path.parent


class Decoders:
    """Decodes pictures for requests, in processes that are ended when one takes too long.

    Pictures that wait are taken in order of the work that their headers announce, the least first: pictures that take
    long delay each other, not ordinary photos. Called in the event loop only.
    """

    def __init__(self, threads: int, max_waiting: int, seconds: float, in_advance: bool = True) -> None:
        """`seconds` is the processor time per picture; a second later it is given up in any case. Processes are started
        `in_advance`, one more than threads, which takes over at once when another one is ended; or when needed."""
        self.pool = DecoderPool(seconds, seconds + 1)
        self.pool.start(threads + 1 if in_advance else 0)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pictures")
        self._free, self._max_waiting = threads, max_waiting
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def square(self, content: bytes, work: int, square: Square, max_pixels: int) -> Pixels:
        return await self._run(work, partial(self.pool.square, content, square, max_pixels))

    async def thumbnail(self, path: Path, side: int) -> bytes:
        """In order of arrival: these are the index's own pictures, which have been decoded before."""
        return await self._run(0, partial(self.pool.thumbnail, path, side))

    def close(self) -> None:
        self.pool.close()
        self._threads.shutdown(cancel_futures=True)

    async def _run(self, work: int, job: Callable[[], T]) -> T:
        """A request that ends early leaves the queue; a picture that is being decoded keeps its thread to the end."""
        if len(self._queue) >= self._max_waiting:
            raise Overloaded
        await self._wait_for_thread(work)
        loop = asyncio.get_running_loop()
        future = self._threads.submit(job)
        future.add_done_callback(partial(self._ended, loop))
        return await asyncio.wrap_future(future)

    def _ended(self, loop: asyncio.AbstractEventLoop, future: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(self._release_thread)

    async def _wait_for_thread(self, work: int) -> None:
        if self._free:
            self._free -= 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (work, next(self._order), granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # granted at the same moment
                self._release_thread()
            raise

    def _release_thread(self) -> None:
        """Pass a thread on to the next that waits for one."""
        while self._queue:
            *_, granted = heapq.heappop(self._queue)
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1


class Thumbnails:
    """Small upright JPEGs, made on the first request and kept in memory up to a limit. Used in the event loop only: the
    cache has no lock."""

    def __init__(self, max_bytes: int) -> None:
        self._cache: LRUCache[tuple[ServedPicture, int], bytes] = LRUCache(max_bytes, getsizeof=_cached_size)

    def cached(self, picture: ServedPicture, side: int) -> bytes | None:
        """An error where the picture is known to be unreadable: it is not decoded a second time."""
        thumbnail = self._cache.get((picture, side))
        if thumbnail == b"":
            raise ApiError("not-found", UNREADABLE)
        return thumbnail

    async def make(self, decoders: Decoders, picture: ServedPicture, side: int) -> bytes:
        """A JPEG whose longer side is `side`, or less if the picture's is. The key has the time and size of the file,
        so that the thumbnail of a file that has changed is not used."""
        try:
            thumbnail = await decoders.thumbnail(picture.path, side)
        except BadPicture as error:
            self._keep(picture, side, b"")
            raise ApiError("not-found", UNREADABLE) from error
        self._keep(picture, side, thumbnail)
        return thumbnail

    def _keep(self, picture: ServedPicture, side: int, thumbnail: bytes) -> None:
        with suppress(ValueError):  # larger than the whole cache
            self._cache[picture, side] = thumbnail


def _cached_size(thumbnail: bytes) -> int:
    return len(thumbnail) + 500  # with its key
