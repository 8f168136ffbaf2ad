"""The candidates of an index of two stages (see `snapshot`) by a scan: all items within a distance by the first bits.

How far that is, a sample of the items says: so far that about `wanted` items are within it. Keeping as many of the
nearest in a heap, as a scan for a few hits does, would take several times as long. Of weights the four upper bits
decide (the lower bounds of `weighted_kernels`): all eight would take twice as long and change few candidates.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kenthash.search.local import scan
from kenthash.search.local.scan import WordQueries, Words

SAMPLE = 4096  # items
SLACK = 4  # times the number wanted, up to which there is room; with less than its inverse the sample misled
LOWER_PLANES = 4  # of weights, which lower bounds leave out

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Within:
    slots: Numbers
    distances: Numbers
    beyond: int  # all other items are at least so far away


def near_by_sample(
    query: WordQueries, codes: Words, allowed: Words, wanted: int, pool: ThreadPoolExecutor | None, threads: int
) -> Within | None:
    """About `wanted` items nearest to one query, by the compiled kernels, on `threads` of the pool. None where the
    sample does not tell how far they are: few items are allowed, or many have one distance."""
    if SLACK * wanted >= len(codes) or len(codes) < SAMPLE:
        return None
    from kenthash.search.local import stage_kernels

    words = query.words[0], planes_of(query, 0)
    sample = np.arange(SAMPLE) * (len(codes) // SAMPLE)
    away = np.empty(SAMPLE, np.int64)
    stage_kernels.distances(words[0], words[1][LOWER_PLANES:], codes, sample, away)
    place = -(-wanted * SAMPLE // len(codes))
    limit = int(np.partition(away, place)[place])
    parts = threads if pool is not None else 1
    edges = [len(codes) * i // parts for i in range(parts + 1)]

    def collect(i: int) -> tuple[Numbers, Numbers] | None:
        slots, distances = np.empty((2, SLACK * wanted), np.int64)
        number = stage_kernels.within(*words, codes, edges[i], edges[i + 1], allowed, limit, slots, distances)
        return None if number < 0 else (slots[:number], distances[:number])

    collected = [part for part in (pool.map if pool is not None else map)(collect, range(parts)) if part is not None]
    number = sum(len(slots) for slots, _ in collected)
    if len(collected) < parts or not wanted <= SLACK * number <= SLACK * SLACK * wanted:
        return None
    slots, distances = (np.concatenate(arrays) for arrays in zip(*collected, strict=True))
    return Within(slots, distances, limit + 1 if query.planes is None else limit + 1 << LOWER_PLANES)


def rest_distances(queries: WordQueries, q: int, codes: Words, slots: Numbers) -> Numbers:
    """The distances of the codes in some slots of an array, of which the others are not read."""
    if not scan.is_compiled():
        return scan.distances(queries, q, codes[slots])
    from kenthash.search.local import stage_kernels

    out = np.empty(len(slots), np.int64)
    stage_kernels.distances(queries.words[q], planes_of(queries, q), codes, slots, out)
    return out


def planes_of(queries: WordQueries, q: int) -> Words:
    return np.empty((0, queries.words.shape[1]), np.uint64) if queries.planes is None else queries.planes[q]
