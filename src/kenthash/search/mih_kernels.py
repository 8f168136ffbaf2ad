"""The compiled steps of multi-index hashing; `mih` says what they do and why that is exact."""

import numpy as np
from numpy.typing import NDArray

from kenthash.jit import compiled, popcount, prefetch
from kenthash.search.block_kernels import intact
from kenthash.search.kernels import RUN, distance, is_allowed, offer
from kenthash.search.mih import UNIT, Cuts, Flags, High, Low, Places
from kenthash.search.scan import Keys, Words

DAMAGED = -(1 << 62)

PROBES = 64  # buckets looked up at a time: their cache misses overlap
GATHER = 256  # codes fetched at a time
AHEAD = 32  # codes of a bucket asked for before it is its turn
PROBE_COST = 4  # of looking up a bucket, in items


@compiled
def fill(
    codes: Words, word: int, shift: int, width: int, offsets: NDArray[np.uint32], low: Low, high: High, copies: Words
) -> None:
    """A counting sort, which keeps the order of slots within a bucket."""
    right, mask = np.uint64(shift), np.uint64((1 << width) - 1)
    offsets[:] = 0
    for i in range(len(codes)):
        offsets[((codes[i, word] >> right) & mask) + np.uint64(1)] += np.uint32(1)
    total = np.uint32(0)
    for bucket in range(1, len(offsets)):  # offsets[v + 1] becomes where the bucket v begins ...
        size = offsets[bucket]
        offsets[bucket] = total
        total += size
    for i in range(len(codes)):  # ... and, when all its items are in, where it ends
        bucket = ((codes[i, word] >> right) & mask) + np.uint64(1)
        place = offsets[bucket]
        low[place], high[place] = i & 0xFFFF, i >> 16
        if len(copies):
            copies[place] = codes[i, 0]
        offsets[bucket] = place + np.uint32(1)


@compiled
def _is_first(query: Words, code: Words, cuts: Cuts, table: int, weight: int) -> bool:
    """Whether no step before (weight, table) meets this item."""
    for i in range(len(cuts)):
        mask = np.uint64((1 << cuts[i, 2]) - 1)
        apart = (query[cuts[i, 0]] ^ code[cuts[i, 0]]) >> np.uint64(cuts[i, 1]) & mask
        reach = weight if i < table else weight - 1
        if i != table and np.int64(popcount(apart)) <= reach:
            return False
    return True


@compiled
def _next_mask(mask: np.uint64) -> np.uint64:
    """The next larger number with as many bits set."""
    one = np.uint64(1)
    lowest = mask & (~mask + one)
    ripple = mask + lowest
    return ripple | (((ripple ^ mask) >> np.uint64(2)) >> np.uint64(popcount(lowest - one)))


@compiled
def _narrow_bucket(
    query: Words, codes: Words, low: Low, high: High, cuts: Cuts, table: int, weight: int, allowed: Words, heap: Keys
) -> None:
    """Offer the items of a bucket: their codes, of one word, lie in the order of their slots."""
    word = query[0]
    for a in range(0, len(codes), RUN):
        run = codes[a : a + RUN]
        least = np.int32(1 << 20)
        for i in range(len(run)):
            least = min(least, np.int32(popcount(word ^ run[i])))
        if np.uint64(least) > heap[0] >> np.uint64(32):
            continue
        for i in range(len(run)):
            slot = int(low[a + i]) | int(high[a + i]) << 16
            key = np.uint64(popcount(word ^ run[i])) << np.uint64(32) | np.uint64(slot)
            if key < heap[0] and _is_first(query, run[i : i + 1], cuts, table, weight) and is_allowed(slot, allowed):
                offer(key, heap)


@compiled
def _wide_bucket(
    query: Words, codes: Words, low: Low, high: High, cuts: Cuts, table: int, weight: int, allowed: Words, heap: Keys
) -> None:
    for i in range(len(low)):
        slot = int(low[i]) | int(high[i]) << 16
        if slot >= len(codes):
            continue
        key = distance(query, codes[slot]) << np.uint64(32) | np.uint64(slot)
        if key < heap[0] and _is_first(query, codes[slot], cuts, table, weight) and is_allowed(slot, allowed):
            offer(key, heap)


@compiled
def _check(start: int, stop: int, ready: Flags, data: Words, sums: Words, seen: Flags, places: Places) -> bool:
    """Whether the entries from start to stop, counted over all tables, are as they were written."""
    for unit in range(start >> UNIT, (stop - 1 >> UNIT) + 1):
        if ready[unit]:
            continue
        for first, size, end in places:
            a, b = first + (size * unit << UNIT), first + (size * (unit + 1) << UNIT)
            if not intact(data, sums, seen, a, min(b, end)):
                return False
        ready[unit] = 1
    return True


@compiled
def _expected(first: int, last: int, cuts: Cuts, items: int) -> float:
    """What the steps look at if codes are spread evenly: Σ C(width, a)·(N/2^width + the cost of a look)."""
    total = 0.0
    for step in range(first, last + 1):
        weight, width = step // len(cuts), cuts[step % len(cuts), 2]
        buckets = 1.0
        for i in range(weight):
            buckets *= (width - i) / (i + 1)
        total += buckets * (items / (1 << width) + PROBE_COST)
    return total


@compiled
def search(
    query: Words,
    codes: Words,
    cuts: Cuts,
    starts: NDArray[np.int64],
    offsets: NDArray[np.uint32],
    low: Low,
    high: High,
    copies: Words,
    allowed: Words,
    free: int,
    budget: int,
    heap: Keys,
    ready: Flags,
    data: Words,
    sums: Words,
    seen: Flags,
    places: Places,
) -> int:
    """The number of items looked at; negative where it gave up, DAMAGED where a table is not as it was written.

    `ready` says which units of entries have been compared with their checksums; it is empty where there are none.
    """
    begin, end = np.empty(PROBES, np.int64), np.empty(PROBES, np.int64)
    gathered, narrow = np.empty(GATHER, np.uint64), codes.reshape(codes.size)
    fast, one, items = copies.shape[1] > 0, np.uint64(1), low.shape[1]
    checked = len(ready) > 0
    spent, step, radius = 0, 0, int(heap[0] >> np.uint64(32)) - 1
    while True:
        last = min(int(heap[0] >> np.uint64(32)), radius)  # further items cannot be among the k best
        if step > last:
            return spent
        if spent > free:
            uneven = max(spent / _expected(0, step - 1, cuts, len(codes)), 1.0)
            if spent + uneven * _expected(step, last, cuts, len(codes)) > budget:
                return -spent
        weight, j = step // len(cuts), step % len(cuts)
        bound = one << np.uint64(cuts[j, 2])
        value = (query[cuts[j, 0]] >> np.uint64(cuts[j, 1])) & (bound - one)
        mask = (one << np.uint64(weight)) - one
        while mask < bound:
            probes, whole = 0, np.uint8(1)
            while mask < bound and probes < PROBES:
                bucket = starts[j] + np.int64(value ^ mask)
                a, b = min(np.int64(offsets[bucket]), items), min(np.int64(offsets[bucket + 1]), items)
                begin[probes], end[probes] = a, b
                if checked and a < b:
                    left, right = j * items + a >> UNIT, j * items + b - 1 >> UNIT
                    whole &= ready[left] & ready[right]
                    for unit in range(left + 1, right):
                        whole &= ready[unit]
                probes += 1
                mask = bound if mask == 0 else _next_mask(mask)
            if not whole:
                for p in range(probes):
                    start, stop = j * items + begin[p], j * items + end[p]
                    if start < stop and not _check(start, stop, ready, data, sums, seen, places):
                        return DAMAGED
            if fast:
                for p in range(probes):
                    for line in range(begin[p], min(begin[p] + AHEAD, end[p]), 8):
                        prefetch(copies[j], line)
            for p in range(probes):
                spent += end[p] - begin[p] + PROBE_COST
                lower, upper = low[j, begin[p] : end[p]], high[j, begin[p] : end[p]]
                if fast:
                    bucket_codes = copies[j, begin[p] : end[p]]
                    _narrow_bucket(query, bucket_codes, lower, upper, cuts, j, weight, allowed, heap)
                elif len(query) == 1:
                    for a in range(0, len(lower), GATHER):
                        some, more = lower[a : a + GATHER], upper[a : a + GATHER]
                        for i in range(len(some)):  # fetched before they are judged: their cache misses overlap
                            gathered[i] = narrow[min(np.int64(some[i]) | np.int64(more[i]) << 16, items - 1)]
                        _narrow_bucket(query, gathered[: len(some)], some, more, cuts, j, weight, allowed, heap)
                else:
                    _wide_bucket(query, codes, lower, upper, cuts, j, weight, allowed, heap)
            if spent > budget:
                return -spent
        step += 1
