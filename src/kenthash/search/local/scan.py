"""The scan in plain numpy, and the choice between it and the compiled one (`kernels`). Both give the same answers.

An item away is one number, its key = distance·2³² + slot, so that the order of keys is ascending distance with ties by
slot (and slots are in the order of ids). The k smallest keys of a query are kept in an array that starts full of keys
that no item has, just beyond the largest distance that counts.

Weighted distances (see `queries`) are Σ_b 2^b · popcount(difference & plane b), where bit i of plane b is bit b of the
weight w_i. Few items need that: numpy leaves out those that differ in so many bits that they are further away than what
is kept, whatever the weights of these bits; the compiled scan, those whose four upper planes say so.

The choice: numba takes .3 s of processor time to import and .35 s to load the compiled kernels, and some 4 s where they
have to be compiled first; numpy takes about 4 ns per 64-bit word of codes, the compiled scan .2. So a process scans
with numpy until that has cost about as much as numba would have, and with compiled kernels from then on: one search
from the command line never waits for numba, and many searches, or many queries at once, soon use it.

The candidates of an index of two stages (see `snapshot`) are all items within a distance by the first bits. How far
that is, a sample of the items says: so far that about as many as wanted are within it. Keeping as many of the nearest
in a heap, as a scan for a few hits does, would take several times as long. Of weights the four upper bits decide (the
lower bounds of `weighted_kernels`): all eight would take twice as long and change few candidates.

numba with llvmlite takes 208 MB, so a plain installation, of 250 MB, does without it: there numpy scans always, and an
index has no tables of multi-index hashing.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.search.queries import BIT_PLANES, Queries, Weights

Words = NDArray[np.uint64]
Keys = NDArray[np.uint64]
Slots = NDArray[np.int64]
Distances = NDArray[np.int64]

SLOT = np.uint64(0xFFFFFFFF)
WORDS_BY_NUMPY = 1 << 27  # words of codes that a process compares with numpy: about .5 s
ITEMS_AT_ONCE = 1 << 16  # which bounds the memory
SAMPLE = 4096  # items of which the distances tell how far the candidates are
SLACK = 4  # times the number wanted, up to which there is room; with less than its inverse the sample misled
LOWER_PLANES = 4  # of weights, which lower bounds leave out

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


@dataclass(frozen=True)
class WordQueries:
    """Queries as the scans take them: codes and planes of weights in words of 64 bits, padded with zeros."""

    words: Words  # [Q, W]
    planes: Words | None  # [Q, 8, W]; None where every bit counts 1
    weights: Weights | None  # [Q, 64 W]
    radius: int  # items that differ in more bits do not count ...
    limits: NDArray[np.int64]  # [Q]: ... nor do those with a larger distance, of which none differs in so few bits

    def __len__(self) -> int:
        return len(self.words)

    def select(self, rows: Any) -> "WordQueries":
        """Those of a slice or list of numbers."""
        planes, weights = (None if part is None else part[rows] for part in (self.planes, self.weights))
        return WordQueries(np.ascontiguousarray(self.words[rows]), planes, weights, self.radius, self.limits[rows])

    def new_heaps(self, k: int) -> Keys:
        return np.repeat((self.limits.astype(np.uint64)[:, None] + np.uint64(1)) << np.uint64(32), k, axis=1)


def to_words(codes: Codes) -> Words:
    """Codes [n, bits / 8] as rows of 64-bit words, padded with zeros."""
    padded = np.zeros((len(codes), -(-codes.shape[1] // 8) * 8), np.uint8)
    padded[:, : codes.shape[1]] = codes
    return padded.view("<u8")


def split_words(codes: Codes, bits: int) -> tuple[Words, Words]:
    """The first `bits` bits of codes, and the others."""
    return to_words(codes[:, : bits // 8]), to_words(codes[:, bits // 8 :])


def word_queries(queries: Queries, radius: int) -> WordQueries:
    words, limits = to_words(queries.codes), _limits(queries, radius)
    if queries.weights is None:
        return WordQueries(words, None, None, radius, limits)
    weights = np.zeros((len(queries), 64 * words.shape[1]), np.uint8)
    weights[:, : queries.bits] = queries.weights
    planes = weights[:, None] >> np.arange(BIT_PLANES, dtype=np.uint8)[:, None] & np.uint8(1)
    return WordQueries(words, np.packbits(planes, axis=2, bitorder="little").view("<u8"), weights, radius, limits)


def joined_queries(queries: Queries, bits: int, radius: int) -> WordQueries:
    """Queries for whole codes of which the first `bits` bits and the others are in words of their own."""
    if bits % 64 == 0:
        return word_queries(queries, radius)
    first, last = (word_queries(part, radius) for part in (queries.first_bits(bits), queries.last_bits(bits)))
    words, limits = np.concatenate((first.words, last.words), axis=1), _limits(queries, radius)
    if first.planes is None or first.weights is None or last.planes is None or last.weights is None:
        return WordQueries(words, None, None, radius, limits)
    planes = np.concatenate((first.planes, last.planes), axis=2)
    return WordQueries(words, planes, np.concatenate((first.weights, last.weights), axis=1), radius, limits)


def _limits(queries: Queries, radius: int) -> NDArray[np.int64]:
    if queries.weights is None:
        return np.full(len(queries), radius, np.int64)
    if radius >= queries.bits:
        return queries.full_distances
    return queries.full_distances - queries.least_distances[:, queries.bits - radius]


def read_heap(heap: Keys, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Slots and distances of a finished heap, in order."""
    keys = np.sort(heap)
    keys = keys[: np.searchsorted(keys, np.uint64((limit + 1) << 32))]
    return (keys & SLOT).astype(np.int64), (keys >> np.uint64(32)).astype(np.int64)


def scan_with_numpy(queries: WordQueries, codes: Words, allowed: Words, heaps: Keys) -> None:
    """Replace keys in `heaps` [Q, k] by smaller ones of the codes [N, W].

    `allowed` has a bit for each slot, or is empty where all slots are allowed.
    """
    for q, heap in enumerate(heaps):
        near = _Near(queries, q)
        for start in range(0, len(codes), ITEMS_AT_ONCE):
            # Slots ascend, so an item as far away as the worst one kept cannot replace it.
            bound = int(heap.max() >> np.uint64(32)) - 1
            slots, away = near.within(bound, codes[start : start + ITEMS_AT_ONCE])
            slots += start
            permitted = are_allowed(slots, allowed)
            if permitted.any():
                slots, away = slots[permitted], away[permitted]
                keys = away.astype(np.uint64) << np.uint64(32) | slots.astype(np.uint64)
                heap[:] = np.partition(np.concatenate((heap, keys)), len(heap) - 1)[: len(heap)]


def scan_compiled(queries: WordQueries, codes: Words, start: int, stop: int, allowed: Words, heaps: Keys) -> None:
    """The same for the codes from start to stop, by the compiled kernels."""
    if queries.planes is None:
        from kenthash.search.local import kernels

        kernels.scan(queries.words, codes, start, stop, allowed, heaps)
    else:
        from kenthash.search.local import weighted_kernels

        weighted_kernels.scan(queries.words, queries.planes, queries.radius, codes, start, stop, allowed, heaps)


def within(queries: WordQueries, q: int, bound: int, codes: Words) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Slots and distances of all codes [N, W] that are not further than `bound` from query q."""
    return _Near(queries, q).within(bound, codes)


def are_allowed(slots: NDArray[np.int64], allowed: Words) -> NDArray[np.bool_]:
    """Whether slots are in a bitmap; all are where it is empty."""
    if not len(allowed):
        return np.ones(len(slots), np.bool_)
    return np.asarray((allowed[slots >> 6] >> (slots & 63).astype(np.uint64)) & np.uint64(1) != 0)


def differing(queries: WordQueries, q: int, codes: Words) -> NDArray[np.int64]:
    """The number of bits in which codes [n, W] differ from query q."""
    return np.asarray(np.bitwise_count(codes ^ queries.words[q]).sum(axis=1, dtype=np.int64))


def distances(queries: WordQueries, q: int, codes: Words) -> NDArray[np.int64]:
    """The distances of codes [n, W] to query q."""
    if queries.planes is None:
        return differing(queries, q, codes)
    apart = codes ^ queries.words[q]
    counts = np.bitwise_count(apart[:, None] & queries.planes[q]).sum(axis=2, dtype=np.int64)
    return np.asarray(counts @ (1 << np.arange(BIT_PLANES)))


class _Near:
    """Which codes are near one query, by numpy."""

    def __init__(self, queries: WordQueries, query: int) -> None:
        self.word, self.radius = queries.words[query], queries.radius
        self.sums = self.tables = None
        if queries.weights is not None:
            weights = queries.weights[query].astype(np.int64)
            self.sums = np.concatenate(([0], np.cumsum(np.sort(weights))))  # S(h) of `queries`, and of padding
            bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
            self.tables = (weights.reshape(-1, 8) @ bits.T.astype(np.int64)).astype(np.uint16)  # [8 W, 256]

    def within(self, bound: int, codes: Words) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Slots and distances of the codes that are not further than `bound`."""
        apart = codes ^ self.word
        counts = np.bitwise_count(apart)
        differing = counts[:, 0] if counts.shape[1] == 1 else counts.sum(axis=1, dtype=np.uint16)
        if self.sums is None or self.tables is None:
            slots = np.flatnonzero(differing <= min(bound, self.radius))
            return slots, differing[slots]
        most = min(int(np.searchsorted(self.sums, bound, "right")) - 1, self.radius)
        slots = np.flatnonzero(differing <= most) if most >= 0 else np.empty(0, np.int64)
        parts = apart[slots].view(np.uint8)
        distances = np.zeros(len(slots), np.uint32)
        for byte, table in enumerate(self.tables):
            distances += table[parts[:, byte]]
        near = distances <= bound
        return slots[near], distances[near]


@dataclass(frozen=True)
class Within:
    slots: Slots
    distances: Distances
    beyond: int  # all other items are at least so far away


def near_by_sample(
    query: WordQueries, codes: Words, allowed: Words, wanted: int, pool: ThreadPoolExecutor | None, threads: int
) -> Within | None:
    """About `wanted` items nearest to one query, by the compiled kernels, on `threads` of the pool. None where the
    sample does not tell how far they are: few items are allowed, or many have one distance."""
    if SLACK * wanted >= len(codes) or len(codes) < SAMPLE:
        return None
    from kenthash.search.local import weighted_kernels

    words = query.words[0], planes_of(query, 0)
    sample = np.arange(SAMPLE) * (len(codes) // SAMPLE)
    away = np.empty(SAMPLE, np.int64)
    weighted_kernels.distances_of_slots(words[0], words[1][LOWER_PLANES:], codes, sample, away)
    place = -(-wanted * SAMPLE // len(codes))
    limit = int(np.partition(away, place)[place])
    parts = threads if pool is not None else 1
    edges = [len(codes) * i // parts for i in range(parts + 1)]

    def collect(i: int) -> tuple[Slots, Distances] | None:
        slots, distances = np.empty((2, SLACK * wanted), np.int64)
        number = weighted_kernels.within_limit(*words, codes, edges[i], edges[i + 1], allowed, limit, slots, distances)
        return None if number < 0 else (slots[:number], distances[:number])

    collected = [part for part in (pool.map if pool is not None else map)(collect, range(parts)) if part is not None]
    number = sum(len(slots) for slots, _ in collected)
    if len(collected) < parts or not wanted <= SLACK * number <= SLACK * SLACK * wanted:
        return None
    slots, distances = (np.concatenate(arrays) for arrays in zip(*collected, strict=True))
    return Within(slots, distances, limit + 1 if query.planes is None else limit + 1 << LOWER_PLANES)


def rest_distances(queries: WordQueries, q: int, codes: Words, slots: Slots) -> Distances:
    """The distances of the codes in some slots of an array, of which the others are not read."""
    if not is_compiled():
        return distances(queries, q, codes[slots])
    from kenthash.search.local import weighted_kernels

    out = np.empty(len(slots), np.int64)
    weighted_kernels.distances_of_slots(queries.words[q], planes_of(queries, q), codes, slots, out)
    return out


def planes_of(queries: WordQueries, q: int) -> Words:
    return np.empty((0, queries.words.shape[1]), np.uint64) if queries.planes is None else queries.planes[q]
