"""The scan in plain numpy, and the choice between it and the compiled one (`kernels`). Both give the same answers.

An item found is one number, its key = distance·2³² + slot, so that the order of keys is ascending distance with ties by
slot (and slots are in the order of ids). The k smallest keys of a query are kept in an array that starts full of keys
that no item has, just beyond the radius.

The choice: numba takes .3 s of processor time to import and .35 s to load the compiled kernels, and some 4 s where they
have to be compiled first; numpy takes about 4 ns per 64-bit word of codes, the compiled scan .2. So a process scans
with numpy until that has cost about as much as numba would have, and with compiled kernels from then on: one search
from the command line never waits for numba, and many searches, or many queries at once, soon use it.

numba with llvmlite takes 208 MB, so a plain installation, of 250 MB, does without it: there numpy scans always, and an
index has no tables of multi-index hashing.
"""

from functools import cache
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Keys = NDArray[np.uint64]

SLOT = np.uint64(0xFFFFFFFF)
WORDS_BY_NUMPY = 1 << 27  # words of codes that a process compares with numpy: about .5 s
ITEMS_AT_ONCE = 1 << 16  # which bounds the memory

_words_left = WORDS_BY_NUMPY


def use_numpy(words: int) -> bool:
    """Whether a search that compares so many words should still run without the compiled kernels."""
    global _words_left
    if not has_numba():
        return True
    if words > _words_left:
        _words_left = -1
        return False
    _words_left -= words
    return True


def is_compiled() -> bool:
    """Whether this process has switched to the compiled kernels."""
    return _words_left < 0 and has_numba()


@cache
def has_numba() -> bool:
    return find_spec("numba") is not None


def use_compiled() -> None:
    """From now on use the compiled kernels: for a process that will search many times, such as a server."""
    global _words_left
    _words_left = -1


def new_heaps(queries: int, k: int, radius: int) -> Keys:
    return np.full((queries, k), (radius + 1) << 32, np.uint64)


def read_heap(heap: Keys, radius: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Slots and distances of a finished heap, in order."""
    keys = np.sort(heap)
    keys = keys[: np.searchsorted(keys, np.uint64((radius + 1) << 32))]
    return (keys & SLOT).astype(np.int64), (keys >> np.uint64(32)).astype(np.int64)


def scan_with_numpy(queries: Words, codes: Words, allowed: Words, heaps: Keys) -> None:
    """Replace keys in `heaps` [Q, k] by smaller ones of the codes [N, W], for each query [Q, W].

    `allowed` has a bit for each slot, or is empty where all slots are allowed.
    """
    for query, heap in zip(queries, heaps, strict=True):
        for start in range(0, len(codes), ITEMS_AT_ONCE):
            keys = _keys_below(query, codes[start : start + ITEMS_AT_ONCE], start, allowed, heap.max())
            if len(keys):
                heap[:] = np.partition(np.concatenate((heap, keys)), len(heap) - 1)[: len(heap)]


def _keys_below(query: Words, codes: Words, start: int, allowed: Words, bound: np.uint64) -> Keys:
    """Keys of the codes, the first of which has the slot `start`, that are below `bound`."""
    counts = np.bitwise_count(codes ^ query)
    distances = counts[:, 0] if counts.shape[1] == 1 else counts.sum(axis=1, dtype=np.uint16)
    # Slots ascend, so an item as far away as the worst one kept cannot replace it.
    near = np.flatnonzero(distances < int(bound >> np.uint64(32)))
    slots = (near + start).astype(np.uint64)
    if len(allowed):
        kept = (allowed[slots >> np.uint64(6)] >> (slots & np.uint64(63))) & np.uint64(1) != 0
        near, slots = near[kept], slots[kept]
    keys: Keys = distances[near].astype(np.uint64) << np.uint64(32) | slots
    return keys
