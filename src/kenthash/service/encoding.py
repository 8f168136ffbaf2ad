"""Queries to codes: words and pictures, through the cache and the batches of the one encoder thread."""

import asyncio
import hashlib
from collections.abc import Sequence
from functools import partial

from cachetools import LRUCache
from PIL import Image

from kenthash.codes import Codes
from kenthash.data.headers import expected_work
from kenthash.data.pictures import BadPicture, Pixels, TooLarge
from kenthash.encoders.stream import picture_vectors
from kenthash.model.hasher import Hasher
from kenthash.service.batching import Batcher, Code, Kind
from kenthash.service.metrics import Metrics
from kenthash.service.problems import Problem
from kenthash.service.settings import Settings
from kenthash.service.workers import Decoders

CACHED_CODES = 20_000  # of queries, in about 8 MB: the next page of an answer is not encoded again


class Encoding:
    """What it hands on does not lead back to it: then a model that a reload has replaced is freed at once. The
    collector, which finds circles, does not look at what was there when the server started."""

    def __init__(self, hasher: Hasher, settings: Settings, metrics: Metrics, decoders: Decoders) -> None:
        self.hasher, self._settings, self._metrics, self._decoders = hasher, settings, metrics, decoders
        self._cache: LRUCache[tuple[str, bytes], Code] = LRUCache(CACHED_CODES)  # used in the event loop only
        self.able = bool(hasher.config.encoder)  # to read words and pictures, not only vectors from elsewhere
        encoder = hasher.encoder if self.able else None
        self.texts = Kind("text", hasher.encode_texts, encoder.text_chunk if encoder else 1)
        self.pictures = Kind("image", partial(_encode_pictures, hasher), encoder.picture_chunk if encoder else 1)
        self.batcher = Batcher(settings.max_queue, partial(_report, metrics))

    def warm_up(self) -> None:
        """The first batches are slow: they are not left to a user."""
        if self.able:
            self.hasher.encode_texts(["a picture"])
            self.hasher.encode_pictures(Image.new("RGB", (64, 64)))

    async def text(self, text: str) -> Code:
        self._check_able()
        key = ("text", hashlib.sha256(text.encode()).digest())  # so that every entry takes as much memory
        if (code := self._cached(key)) is None:
            code = await self.batcher.encode(self.texts, text)
            self._cache[key] = code
        return code

    async def picture(self, content: bytes) -> Code:
        self._check_able()
        digest, work = await asyncio.to_thread(_look_at, content)
        key = ("image", digest)
        if (code := self._cached(key)) is None:
            code = await self.batcher.encode(self.pictures, await self._decode(content, work))
            self._cache[key] = code
        return code

    def close(self) -> None:
        self.batcher.close()

    def _cached(self, key: tuple[str, bytes]) -> Code | None:
        code = self._cache.get(key)
        if code is not None:
            self._metrics.cached.labels("code").inc()
        return code

    def _check_able(self) -> None:
        if not self.able:
            detail = "this model was trained on vectors from elsewhere: search by the id of an item instead"
            raise Problem("no-encoder", detail)

    async def _decode(self, content: bytes, work: int) -> Pixels:
        """A stranger's bytes to the pixels that the encoder takes."""
        try:
            return await self._decoders.square(content, work, self.hasher.encoder.square(), self._settings.max_pixels)
        except TooLarge as error:
            raise Problem("too-large", f"a picture of {error.reason}: send a smaller one") from error
        except BadPicture as error:
            raise Problem("bad-picture", f"{error}: send a JPEG, PNG, WebP, GIF or BMP") from error


def _encode_pictures(hasher: Hasher, squares: Sequence[Pixels]) -> Codes:
    return hasher.encode_image_features(picture_vectors(hasher.encoder, squares))


def _report(metrics: Metrics, kind: str, items: int, seconds: float) -> None:
    metrics.batches.labels(kind).observe(items)
    metrics.encode_seconds.labels(kind).inc(seconds)


def _look_at(content: bytes) -> tuple[bytes, int]:
    """What the cache knows a picture by, and how much work it is to decode."""
    return hashlib.sha256(content).digest(), expected_work(content)
