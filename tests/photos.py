"""Pictures as large as a camera's, made for tests: small ones pass through none of the reductions that a photo does."""

from io import BytesIO

import numpy as np
from PIL import Image


def photo(seed: int, size: tuple[int, int] = (1792, 1344)) -> Image.Image:
    """Large shapes, detail and grain, which decoding at a fraction of the size does not leave as they are."""
    rng = np.random.default_rng(seed)
    shapes = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8)).resize(size)
    detail = Image.fromarray(rng.integers(0, 256, (size[1] // 8, size[0] // 8), np.uint8)).resize(size)
    grain = rng.integers(-12, 13, (size[1], size[0], 1), np.int16)
    pixels = np.asarray(shapes, np.int16) + (np.asarray(detail, np.int16)[..., None] - 128) // 3 + grain
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def many_scans(scans: int, size: tuple[int, int] = (7000, 7100)) -> bytes:
    """A progressive JPEG of one grey whose last scan is repeated: each leads a decoder through all of it."""
    stream = BytesIO()
    Image.new("L", size).save(stream, "JPEG", progressive=True)
    content = stream.getvalue()
    last = content.rindex(b"\xff\xda")
    return content[:last] + content[last:-2] * (scans - content.count(b"\xff\xda") + 1) + content[-2:]
