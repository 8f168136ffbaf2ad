"""The compiled passes over packed codes. Nothing is sorted: a Hamming distance is a small integer, so a ranking is a
histogram.

Codes of queries come as rows of 64-bit words [Q, W], those of the database transposed [W, N]; database labels come as
one bitmap over the items for each class [C, N/64], query labels as lists of classes. So the inner loops run over
items that lie side by side and compile to vector instructions for any code length, and labels cost by those a query
has, not by how many classes there are. Items are taken in blocks that stay in the first cache while all queries pass.

The kernels release the interpreter lock; `tally.py` runs them on a thread for every core. That keeps them safe
under threads and forks, which numba's own parallel loops are not on every system.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kenthash.kernels import compiled, popcount

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]

BLOCK = 2048  # items; 16 KiB of each word row
RANK = 1 << 32  # see `_advance`


class Chunk(NamedTuple):
    """Queries and a part of the database, laid out for the passes."""

    queries: Words  # [Q, W]
    offsets: Counts  # [Q + 1]: query q has the classes offsets[q] to offsets[q + 1]
    classes: Counts
    words: Words  # [W, N], codes of the items
    bitmaps: Words  # [C, N/64], labels of the items
    own: Counts  # [Q], the item that a query must not find, or a number out of range


@compiled
def _distances(query: Words, words: Words, start: int, out: NDArray[np.uint32]) -> None:
    """out[j] = Hamming distance of the query to item start + j."""
    stop = start + len(out)
    first = words[0, start:stop]
    for j in range(len(out)):
        out[j] = np.uint32(popcount(query[0] ^ first[j]))
    for w in range(1, len(query)):
        items = words[w, start:stop]
        for j in range(len(out)):
            out[j] += np.uint32(popcount(query[w] ^ items[j]))


@compiled
def _add_bits(bits: Words, out: NDArray[np.uint32]) -> None:
    """out[64b + j] += bit j of word b."""
    for b in range(len(bits)):
        word, items = bits[b], out[64 * b : 64 * b + 64]
        for j in range(64):
            items[j] += np.uint32((word >> np.uint64(j)) & np.uint64(1))


@compiled
def _shared_labels(
    classes: Counts, bitmaps: Words, start: int, grades: int, either: Words, out: NDArray[np.uint32]
) -> None:
    """out[j] = number of the query's classes that item start + j has; with two grades, whether it has any.

    `out` spans whole words; `either` is room for as many of them.
    """
    out[:] = 0
    a, b = start // 64, start // 64 + len(either)
    if grades > 2:
        for c in classes:
            _add_bits(bitmaps[c, a:b], out)
    else:
        either[:] = 0
        for c in classes:
            items = bitmaps[c, a:b]
            for w in range(len(either)):
                either[w] |= items[w]
        _add_bits(either, out)


@compiled
def _compare(
    chunk: Chunk,
    q: int,
    start: int,
    grades: int,
    distance: NDArray[np.uint32],
    shared: NDArray[np.uint32],
    either: Words,
) -> None:
    """Distances and shared labels of query q and the items from `start` on; arrays as in the two functions above."""
    asked = chunk.classes[chunk.offsets[q] : chunk.offsets[q + 1]]
    _distances(chunk.queries[q], chunk.words, start, distance)
    _shared_labels(asked, chunk.bitmaps, start, grades, either, shared)


@compiled
def _count(distance: NDArray[np.uint32], shared: NDArray[np.uint32], grades: int, counts: Counts) -> None:
    """Add each item to the bin distance·grades + min(shared, grades − 1), writing the bins over the distances."""
    stride, top = np.uint32(grades), np.uint32(grades - 1)
    for j in range(len(distance)):
        distance[j] = distance[j] * stride + min(shared[j], top)
    for j in range(len(distance)):
        counts[distance[j]] += 1


@compiled
def tally(chunk: Chunk, first: int, last: int, grades: int, counts: Counts) -> None:
    """Add the items to counts[q, distance·grades + grade] for the queries first to last.

    The grade is the number of shared labels, cut at grades − 1; with grades = 2 it is plain relevance.
    """
    size, own = chunk.words.shape[1], chunk.own
    distance, shared, either = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32), np.empty(BLOCK // 64, np.uint64)
    for start in range(0, size, BLOCK):
        n = min(BLOCK, size - start)
        span = (n + 63) // 64
        d, s = distance[:n], shared[:n]
        for q in range(first, last):
            _compare(chunk, q, start, grades, d, shared[: 64 * span], either[:span])
            _count(d, s, grades, counts[q])
            if start <= own[q] < start + n:
                counts[q, d[own[q] - start]] -= 1


@compiled
def _advance(distance: NDArray[np.uint32], shared: NDArray[np.uint32], state: Words, out: Words) -> int:
    """Rank the items of a block in their order; the state after each relevant one goes to `out`; their number.

    A state holds a rank in its upper and the relevant items so far in its lower 32 bits, so that one addition
    advances both, and there is no branch to mispredict. Ranks stay below 2³¹.
    """
    size = np.uint64(0)
    for j in range(len(distance)):
        relevant = np.uint64(shared[j])
        now = state[distance[j]] + (np.uint64(RANK) | relevant)
        state[distance[j]] = now
        out[size] = now
        size += relevant
    return int(size)


@compiled
def _keep(states: Words, cutoff: int) -> int:
    """Move the states of rank up to the cut-off to the front; their number."""
    kept = 0
    for j in range(len(states)):
        if np.int64(states[j] >> np.uint64(32)) <= cutoff:
            states[kept] = states[j]
            kept += 1
    return kept


@compiled
def _precision_sum(states: Words) -> float:
    """Σ found/rank."""
    halves = states.view(np.int32)
    total = 0.0
    for j in range(len(states)):
        total += halves[2 * j] / halves[2 * j + 1]
    return total


@compiled
def walk(
    chunk: Chunk,
    first: int,
    last: int,
    cutoffs: Counts,
    state: Words,
    precision_sum: NDArray[np.float64],
    hits: Counts,
) -> None:
    """The second pass of the stable rule: items of one distance rank in the order of their index.

    state[q, d] = rank·2³² + found holds how many items, and relevant items, come before the next one at distance d;
    it starts as the counts of all smaller distances. Its last column takes the query's own item. For each cut-off
    (ascending), precision_sum[q, c] collects found/rank at every relevant item of rank up to it, hits[q, c] their
    number.
    """
    size, own = chunk.words.shape[1], chunk.own
    distance, shared, either = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32), np.empty(BLOCK // 64, np.uint64)
    relevant = np.empty(BLOCK, np.uint64)
    for start in range(0, size, BLOCK):
        n = min(BLOCK, size - start)
        span = (n + 63) // 64
        d, s = distance[:n], shared[:n]
        for q in range(first, last):
            _compare(chunk, q, start, 2, d, shared[: 64 * span], either[:span])
            if start <= own[q] < start + n:
                d[own[q] - start], s[own[q] - start] = state.shape[1] - 1, 0
            m = _advance(d, s, state[q], relevant)
            for c in range(len(cutoffs) - 1, -1, -1):  # from the largest on, so that few are left for the small ones
                if cutoffs[c] < RANK:
                    m = _keep(relevant[:m], cutoffs[c])
                precision_sum[q, c] += _precision_sum(relevant[:m])
                hits[q, c] += m
