"""The compiled scan: exact k nearest codes under Hamming distance, for one query or many.

Keys are those of `scan`. Each query keeps its k smallest keys in a heap whose root is the largest of them. The heap
starts full of keys that no item has, just beyond the radius: so `key < root` is the only test there is.

Codes are rows of 64-bit words [N, W]. They pass in blocks that stay in the first cache while all queries take their
turn, and a run of items is first asked whether any is near enough, which compiles to vector instructions without a
branch.
"""

import numpy as np
from numpy.typing import NDArray

from kenthash.jit import compiled, popcount
from kenthash.search.scan import Keys, Words

BLOCK = 2048  # items of one word: 16 KiB
RUN = 256  # items asked at once whether any is near enough


@compiled
def offer(key: np.uint64, heap: Keys) -> None:
    """Put a key in the place of the largest, if it is smaller."""
    if key >= heap[0]:
        return
    size, place = len(heap), 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= key:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = key


@compiled
def is_allowed(slot: int, allowed: Words) -> bool:
    """`allowed` has a bit for each slot, or is empty where all slots are."""
    if len(allowed) == 0:
        return True
    return slot >> 6 < len(allowed) and (allowed[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1) != 0


@compiled
def distance(query: Words, code: Words) -> np.uint64:
    total = np.uint64(0)
    for w in range(len(query)):
        total += np.uint64(popcount(query[w] ^ code[w]))
    return total


@compiled
def _scan_narrow(query: np.uint64, codes: Words, start: int, stop: int, allowed: Words, heap: Keys) -> None:
    """Codes of one word."""
    for a in range(start, stop, RUN):
        run = codes[a : min(a + RUN, stop)]
        # Slots ascend, so an item as far as the root can only lose against it. Whether any is nearer is the sign of
        # all differences together: two plain instructions a vector, where the least distance takes more.
        root, nearer = np.int64(heap[0] >> np.uint64(32)), np.int64(0)
        for i in range(len(run)):
            nearer |= np.int64(popcount(query ^ run[i])) - root
        if nearer >= 0:
            continue
        for i in range(len(run)):
            key = np.uint64(popcount(query ^ run[i])) << np.uint64(32) | np.uint64(a + i)
            if key < heap[0] and is_allowed(a + i, allowed):
                offer(key, heap)


@compiled
def _distances(query: Words, run: Words, out: NDArray[np.int32]) -> np.int32:
    """Distances to the codes of a run, given as one row of words; the least of them."""
    words, least = len(query), np.int32(1 << 20)
    if words == 2:  # the loop below, unrolled: half as long again otherwise
        for i in range(len(out)):
            out[i] = np.int32(popcount(query[0] ^ run[2 * i])) + np.int32(popcount(query[1] ^ run[2 * i + 1]))
            least = min(least, out[i])
        return least
    for i in range(len(out)):
        total = np.int32(0)
        for w in range(words):
            total += np.int32(popcount(query[w] ^ run[i * words + w]))
        out[i] = total
        least = min(least, total)
    return least


@compiled
def _scan_wide(
    query: Words, codes: Words, start: int, stop: int, allowed: Words, heap: Keys, distances: NDArray[np.int32]
) -> None:
    """Codes of several words, all in one row."""
    words = len(query)
    for a in range(start, stop, RUN):
        out = distances[: min(RUN, stop - a)]
        least = _distances(query, codes[a * words : (a + len(out)) * words], out)
        if np.uint64(least) << np.uint64(32) >= heap[0]:
            continue
        for i in range(len(out)):
            key = np.uint64(out[i]) << np.uint64(32) | np.uint64(a + i)
            if key < heap[0] and is_allowed(a + i, allowed):
                offer(key, heap)


@compiled
def scan(queries: Words, codes: Words, start: int, stop: int, allowed: Words, heaps: Keys) -> None:
    """Offer the items start to stop to every query: queries [Q, W], codes [N, W], heaps [Q, k]."""
    words = codes.shape[1]
    step = max(BLOCK // words, 64)
    row = codes.reshape(codes.size)  # contiguous, which codes[:, 0] is not to the compiler
    distances = np.empty(RUN, np.int32)
    for a in range(start, stop, step):
        b = min(a + step, stop)
        for q in range(len(queries)):
            if words == 1:
                _scan_narrow(queries[q, 0], row, a, b, allowed, heaps[q])
            else:
                _scan_wide(queries[q], row, a, b, allowed, heaps[q], distances)
