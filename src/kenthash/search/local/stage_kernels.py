"""The compiled kernels of the first of two stages: all codes within a bound, and distances of codes here and there.

They compute what `stages` says, and like `kernels` are imported only where they run. Queries have planes of weights
[8, W] as in `weighted_kernels`, or none, [0, W], where every bit counts 1.
"""

import numpy as np
from numpy.typing import NDArray

from kenthash.jit import compiled, popcount, prefetch
from kenthash.search.local.kernels import RUN, is_allowed
from kenthash.search.local.scan import Words
from kenthash.search.local.weighted_kernels import GROUP, Bounds, _lower_bounds
from kenthash.search.queries import BIT_PLANES

Numbers = NDArray[np.int64]
AHEAD = 16  # codes that are asked for before they are needed


@compiled
def _distance(query: Words, planes: Words, code: Words) -> np.int64:
    total = np.int64(0)
    for w in range(len(query)):
        apart = query[w] ^ code[w]
        if len(planes) == 0:
            total += np.int64(popcount(apart))
        elif len(planes) == BIT_PLANES:  # the loop below, unrolled
            for b in range(BIT_PLANES):
                total += np.int64(popcount(apart & planes[b, w])) << b
        else:
            for b in range(len(planes)):
                total += np.int64(popcount(apart & planes[b, w])) << b
    return total


@compiled
def distances(query: Words, planes: Words, codes: Words, slots: Numbers, out: Numbers) -> None:
    """The distances of the codes in some slots."""
    words = codes.shape[1]
    row = codes.reshape(codes.size)
    for i in range(len(slots)):
        if i + AHEAD < len(slots):
            prefetch(row, slots[i + AHEAD] * words)
        out[i] = _distance(query, planes, row[slots[i] * words : (slots[i] + 1) * words])


@compiled
def _plain_bounds(query: Words, run: Words, out: Bounds) -> None:
    words = len(query)
    for i in range(len(out)):
        total = np.int64(0)
        for w in range(words):
            total += np.int64(popcount(query[w] ^ run[i * words + w]))
        out[i] = total


@compiled
def within(
    query: Words,
    planes: Words,
    codes: Words,
    start: int,
    stop: int,
    allowed: Words,
    limit: int,
    slots: Numbers,
    out: Numbers,
) -> int:
    """Slots and distances of the codes from start to stop whose lower bound is at most `limit`; their number, or −1
    where there is no room for all of them. Without weights a lower bound is the distance, with weights sixteenths of
    it."""
    words, number = codes.shape[1], 0
    row = codes.reshape(codes.size)
    bounds = np.empty(RUN, np.int64)
    for a in range(start, stop, RUN):
        size = min(RUN, stop - a)
        run = row[a * words : (a + size) * words]
        if size < RUN:
            bounds[size:] = limit + 1
        if len(planes) == 0:
            _plain_bounds(query, run, bounds[:size])
        else:
            _lower_bounds(query, planes, run, bounds[:size])
        for g in range(RUN // GROUP):
            nearer = np.int64(0)  # negative if any bound is: a fixed number of items, without a branch, is vectorised
            for i in range(GROUP):
                nearer |= bounds[g * GROUP + i] - np.int64(limit + 1)
            if nearer >= 0:
                continue
            for i in range(g * GROUP, (g + 1) * GROUP):
                if bounds[i] <= limit and is_allowed(a + i, allowed):
                    if number == len(slots):
                        return -1
                    slots[number] = a + i
                    out[number] = _distance(query, planes, run[i * words : (i + 1) * words])
                    number += 1
    return number
