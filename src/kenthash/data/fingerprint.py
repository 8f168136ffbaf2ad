"""Fingerprints of pictures: 96 bits, of which few change when a picture is saved again, resized or cropped a little.

A fingerprint holds the signs of the 96 lowest frequencies, but for the mean, of the discrete cosine transform of the
picture in 32 × 32 grey values ("pHash": Zauner, Implementation and Benchmarking of Perceptual Image Hash Functions,
2010, with more frequencies). Unlike a code it knows nothing of what a picture shows: of two photos of one dog half of
the bits differ.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BITS = 96
SIDE = 32


def fingerprint(pixels: NDArray[np.uint8]) -> str:
    """The fingerprint of a picture [height, width, 3], as 24 hexadecimal digits."""
    small = Image.fromarray(pixels).convert("L").resize((SIDE, SIDE), Image.Resampling.BICUBIC, reducing_gap=3.0)
    spectrum = _COSINES @ np.asarray(small, np.float32) @ _COSINES.T
    return np.packbits(spectrum.reshape(-1)[_LOWEST] > 0).tobytes().hex()


def _cosines() -> NDArray[np.float32]:
    """The orthonormal DCT-II: row k is cos(π k (2n + 1) / 2N)."""
    k = np.arange(SIDE)
    rows = np.cos(np.pi * k[:, None] * (2 * k + 1) / (2 * SIDE)) * np.sqrt(2 / SIDE)
    rows[0] /= np.sqrt(2)
    return np.asarray(rows, np.float32)


def _lowest() -> NDArray[np.intp]:
    """Places of the lowest frequencies, by their distance from the mean."""
    k = np.arange(SIDE)
    frequency = k[:, None] ** 2 + k**2
    return np.argsort(frequency, axis=None, kind="stable")[1 : BITS + 1]


_COSINES, _LOWEST = _cosines(), _lowest()
