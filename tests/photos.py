"""Pictures as large as a camera's, made for tests: small ones pass through none of the reductions that a photo does."""

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
