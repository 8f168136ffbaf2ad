"""How well the bits of a set of codes are used: is each on half the time, and do they say different things?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.evaluation.inputs import check_codes

CHUNK = 1 << 14  # rows unpacked at a time; counts of so many are exact in float32


@dataclass(frozen=True)
class BitUse:
    """`ones[i]` is the share of items whose bit i is 1. `balance` is the mean over bits of 1 − |2·ones − 1|: 1 when
    every bit halves the items, 0 when every bit is constant. `correlation` is the mean absolute Pearson correlation
    of two different bits (NaN with fewer than two that vary); constant bits have none and are counted in `constant`.
    """

    ones: NDArray[np.float64]
    balance: float
    correlation: float
    constant: int


def bit_use(codes: Codes) -> BitUse:
    check_codes("database", codes)
    n, bits = len(codes), 8 * codes.shape[1]
    both = np.zeros((bits, bits))  # how often bits i and j are 1 together
    for start in range(0, n, CHUNK):
        on = np.unpackbits(codes[start : start + CHUNK], axis=1, bitorder="little").astype(np.float32)
        both += on.T @ on
    ones = np.diag(both) / n
    varying = (ones > 0) & (ones < 1)
    p = ones[varying]
    covariance = both[np.ix_(varying, varying)] / n - np.outer(p, p)
    spread = np.sqrt(p * (1 - p))
    r = np.abs(covariance / np.outer(spread, spread))
    m = len(p)
    correlation = float((r.sum() - np.trace(r)) / (m * (m - 1))) if m > 1 else float("nan")
    return BitUse(ones, float((1 - np.abs(2 * ones - 1)).mean()), correlation, bits - m)
