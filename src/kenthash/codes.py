"""Binary codes: sign, pack, unpack, Hamming distance.

Bit i of a code is 1 where h_i >= 0 (so sign(0) = +1). Bits are packed little-endian within a byte, so that the 8
bytes of a 64-bit code read as one little-endian uint64.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kenthash.errors import UsageError

Codes = NDArray[np.uint8]  # [N, bits / 8]

MIN_BITS, MAX_BITS = 8, 1024


def check_bits(bits: int) -> int:
    if bits % 8 or not MIN_BITS <= bits <= MAX_BITS:
        raise UsageError(f"{bits} bits: the code length must be a multiple of 8 from {MIN_BITS} to {MAX_BITS}")
    return bits


def pack(outputs: ArrayLike) -> Codes:
    """Sign real outputs [N, K] and pack them to codes [N, K/8]. NaN has no sign and is refused.

    Example:

        >>> pack([[0.9, -0.2, 0.0, 0.1, -1.0, -1.0, -1.0, 0.5]])  # bits 0, 2, 3 and 7: 1 + 4 + 8 + 128
        array([[141]], dtype=uint8)
    """
    h = np.asarray(outputs)
    if h.ndim != 2:
        raise UsageError(f"outputs must have two dimensions [items, bits], not shape {h.shape}")
    check_bits(h.shape[1])
    if h.dtype.kind not in "fi":
        raise UsageError(f"outputs of type {h.dtype} have no sign: give real outputs, or signs -1 and +1")
    if h.dtype.kind == "f" and np.isnan(h).any():
        row = int(np.isnan(h).any(axis=1).argmax())
        raise UsageError(f"outputs of item {row} hold NaN, which has no sign: check its features")
    return np.packbits(h >= 0, axis=1, bitorder="little")


def unpack(codes: Codes) -> NDArray[np.int8]:
    """Codes [N, K/8] to signs [N, K] in {-1, +1}.

    Example:

        >>> unpack(np.array([[141]], np.uint8))
        array([[ 1, -1,  1,  1, -1, -1, -1,  1]], dtype=int8)
    """
    bits = np.unpackbits(codes, axis=1, bitorder="little").astype(np.int8)
    return 2 * bits - 1


def combine(outputs: ArrayLike, weights: ArrayLike) -> NDArray[np.float32]:
    """One query [1, K] of several real-valued outputs [n, K]: their sum with these weights, which may be negative,
    after each has been scaled to length 1. Codes take part as their signs (`unpack`).

    Example (as much of the first as of the second, and less of the third):

        >>> combine([[3.0, 0.0], [0.0, 0.1], [0.0, 5.0]], [1, 1, -0.5])
        array([[1. , 0.5]], dtype=float32)
    """
    h, w = np.asarray(outputs, np.float32), np.asarray(weights, np.float32)
    if h.ndim != 2 or w.shape != h.shape[:1]:
        raise UsageError(f"outputs of shape {h.shape} and weights of shape {w.shape}: give [n, bits] and [n]")
    lengths = np.linalg.norm(h, axis=1, keepdims=True)
    return np.asarray((w[:, None] * h / np.maximum(lengths, np.finfo(np.float32).tiny)).sum(axis=0, keepdims=True))


def hamming(a: Codes, b: Codes) -> NDArray[np.int64]:
    """Hamming distances [len(a), len(b)]. The plain form, for small sets; `search` and `evaluation` have kernels.

    Example:

        >>> hamming(np.array([[0b1101]], np.uint8), np.array([[0b1101], [0b0100], [0b0010]], np.uint8))
        array([[0, 2, 4]])
    """
    if a.shape[1:] != b.shape[1:]:
        raise UsageError(f"codes of {8 * a.shape[-1]} and {8 * b.shape[-1]} bits have no distance")
    return np.asarray(np.bitwise_count(a[:, None, :] ^ b[None, :, :]).sum(axis=2, dtype=np.int64))
