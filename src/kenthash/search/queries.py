"""Queries as engines take them: packed codes, or real-valued outputs, whose sizes say how much each bit counts.

A real-valued query q ranks codes by the weighted Hamming distance d(q, c) = Σ w_i [c_i differs from the sign of q_i],
w_i = |q_i|: the order of the inner products of q with the signs of codes, so that nothing of the query is lost by
signing (Gordo, Perronnin, Gong & Lazebnik, "Asymmetric distances for binary embeddings", TPAMI 2014). Weights are
rounded to 8 bits, w_i = round(255 |q_i| / max |q|): distances are whole numbers, equal ones are ties, and all engines
give the same answers.

A code that differs in h bits is at least S(h) away, the sum of the h smallest weights. So once all codes within a
Hamming distance of r are known, and the k-th best of them is nearer than S(r + 1), no other code can be among the best.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, pack

MAX_WEIGHT = 255
WITHOUT = 0.5  # how much what is taken away from a query counts, compared with what is in it (`codes.combine`)
BIT_PLANES = 8  # of a weight

Weights = NDArray[np.uint8]


@dataclass(frozen=True)
class Queries:
    codes: Codes  # [Q, bits / 8]
    weights: Weights | None = None  # [Q, bits]; None: every bit counts 1

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def bits(self) -> int:
        return 8 * int(self.codes.shape[1])

    def select(self, rows: Any) -> "Queries":
        """Those of a slice or list of numbers."""
        return Queries(self.codes[rows], None if self.weights is None else self.weights[rows])

    def first_bits(self, bits: int) -> "Queries":
        weights = None if self.weights is None else np.ascontiguousarray(self.weights[:, :bits])
        return Queries(np.ascontiguousarray(self.codes[:, : bits // 8]), weights)

    def last_bits(self, after: int) -> "Queries":
        """All bits but the first `after`."""
        weights = None if self.weights is None else np.ascontiguousarray(self.weights[:, after:])
        return Queries(np.ascontiguousarray(self.codes[:, after // 8 :]), weights)

    @cached_property
    def full_distances(self) -> NDArray[np.int64]:
        """[Q]: the distance of a code that differs in every bit."""
        if self.weights is None:
            return np.full(len(self), self.bits, np.int64)
        return np.asarray(self.weights.sum(axis=1, dtype=np.int64))

    @cached_property
    def least_distances(self) -> NDArray[np.int64]:
        """[Q, bits + 2]: S(h), the least distance of a code that differs in h bits. The last, of more bits than there
        are, is beyond all distances."""
        ordered = np.ones((len(self), self.bits), np.int64) if self.weights is None else np.sort(self.weights, axis=1)
        sums = np.cumsum(ordered, axis=1, dtype=np.int64)
        return np.concatenate((np.zeros((len(self), 1), np.int64), sums, sums[:, -1:] + 1), axis=1)

    def planes(self, query: int) -> list[tuple[int, Codes]]:
        """Bit b of all weights of one query, packed like a code, with 2^b: Σ 2^b · (number of bits of plane b in which
        a code differs) is its distance. Empty planes are left out."""
        if self.weights is None:
            return [(1, np.full(self.bits // 8, 255, np.uint8))]
        planes = [np.packbits(self.weights[query] >> b & 1, bitorder="little") for b in range(BIT_PLANES)]
        return [(1 << b, plane) for b, plane in enumerate(planes) if plane.any()]

    def distances(self, query: int, codes: Codes) -> NDArray[np.int64]:
        """The distances of codes [n, bits / 8] to one of the queries. The plain form, for few codes."""
        apart = codes ^ self.codes[query]
        if self.weights is None:
            return np.asarray(np.bitwise_count(apart).sum(axis=1, dtype=np.int64))
        return np.asarray(np.unpackbits(apart, axis=1, bitorder="little") @ self.weights[query].astype(np.int64))


def real_valued(outputs: NDArray[np.floating[Any]]) -> Queries:
    """Queries of outputs [Q, bits], which are finite.

    Example:

        >>> queries = real_valued(np.array([[1.0, -0.5, 0.2, 0, 0, 0, 0, 0]]))
        >>> queries.weights
        array([[255, 128,  51,   0,   0,   0,   0,   0]], dtype=uint8)
        >>> queries.distances(0, np.uint8([[0b11111101], [0b11111100], [0b11111011]]))
        array([  0, 255, 179])
    """
    sizes = np.abs(outputs).astype(np.float64)
    largest = np.maximum(sizes.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return Queries(pack(outputs), np.rint(MAX_WEIGHT * sizes / largest).astype(np.uint8))
