"""All compiled kernels of the local engine: the scan, the checksums of blocks, and multi-index hashing.

They need numba, which a plain installation lacks and which takes .3 s to import. So this module is imported only where
a kernel runs; `scan`, `checksums` and `mih` say what the kernels compute and when they are used.
"""

import numpy as np
from numpy.typing import NDArray

from kenthash.jit import compiled, inlined, popcount, prefetch
from kenthash.search.local.checksums import BLOCK, MULTIPLIER
from kenthash.search.local.mih import UNIT, Cuts, Flags, High, Low, Places
from kenthash.search.local.scan import Keys, Words

SCAN_BLOCK = 2048  # items of one word: 16 KiB, which stay in the first cache while all queries are compared with them
RUN = 256  # items that are tested together for whether any of them is near enough

DAMAGED = -(1 << 62)  # returned by `search_tables` where a table does not match its checksums
PROBES = 64  # buckets looked up at a time, so that their cache misses overlap
GATHER = 256  # codes fetched at a time
AHEAD = 32  # codes of a bucket that are prefetched
PROBE_COST = 4  # of looking up a bucket, in items


# The scan: exact k nearest codes under Hamming distance, for one query or many. Codes are rows of 64-bit words [N, W].
# Each query keeps its k smallest keys (see `scan`) in a heap whose root is the largest of them. The heap starts full of
# keys that no item has, just beyond the radius: so `key < root` is the only test. A run of items is first tested for
# whether any is near enough, which compiles to vector instructions without a branch.


@compiled
def offer(key: np.uint64, heap: Keys) -> None:
    """Replace the largest key by this one, if this one is smaller."""
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
    """`allowed` has a bit for each slot, or is empty where all slots are allowed."""
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
        # Slots ascend, so an item as far away as the root cannot replace it. Whether any item is nearer is the sign of
        # all differences combined by OR: two instructions per vector, where a minimum takes more.
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
    if words == 2:  # the loop below, unrolled: it takes 1.5 times as long otherwise
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
    step = max(SCAN_BLOCK // words, 64)
    row = codes.reshape(codes.size)  # contiguous, which codes[:, 0] is not to the compiler
    distances = np.empty(RUN, np.int32)
    for a in range(start, stop, step):
        b = min(a + step, stop)
        for q in range(len(queries)):
            if words == 1:
                _scan_narrow(queries[q, 0], row, a, b, allowed, heaps[q])
            else:
                _scan_wide(queries[q], row, a, b, allowed, heaps[q], distances)


# Checksums of blocks.


@compiled
def _mix(h: np.uint64) -> np.uint64:
    h *= MULTIPLIER
    return h ^ h >> np.uint64(32)


@compiled
def checksum(data: Words, block: int) -> np.uint64:
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    start = block * (BLOCK // 8)
    for i in range(start, start + BLOCK // 8, 4):
        a, b, c, d = _mix(a ^ data[i]), _mix(b ^ data[i + 1]), _mix(c ^ data[i + 2]), _mix(d ^ data[i + 3])
    return _mix(_mix(_mix(_mix(a) ^ b) ^ c) ^ d)


@compiled
def intact(data: Words, sums: Words, seen: NDArray[np.uint8], start: int, stop: int) -> bool:
    """Whether the bytes from start to stop are as they were written. Blocks that have been compared are not read again;
    two threads may both compare one, which does no harm."""
    for block in range(start // BLOCK, (stop + BLOCK - 1) // BLOCK):
        if seen[block] == 0:
            if checksum(data, block) != sums[block]:
                return False
            seen[block] = 1
    return True


@compiled
def fill_checksums(data: Words, sums: Words, first: int, last: int) -> None:
    for block in range(first, last):
        sums[block] = checksum(data, block)


# Multi-index hashing.


@compiled
def fill_table(
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
    """Offer the items of a bucket to the heap: their codes, of one word, are in the order of their slots."""
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


@inlined
def are_ready(start: int, stop: int, ready: Flags) -> np.uint8:
    """1 if the entries from start to stop, counted over all tables, have all been compared with their checksums."""
    left, right = start >> UNIT, stop - 1 >> UNIT
    flag: np.uint8 = ready[left] & ready[right]
    for unit in range(left + 1, right):
        flag &= ready[unit]
    return flag


@inlined
def check_buckets(
    first: int,
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    number: int,
    ready: Flags,
    data: Words,
    sums: Words,
    seen: Flags,
    places: Places,
) -> bool:
    """Whether the entries of so many buckets of the table whose entries start at `first` are as they were written."""
    for p in range(number):
        if begin[p] == end[p]:
            continue
        for unit in range(first + begin[p] >> UNIT, (first + end[p] - 1 >> UNIT) + 1):
            if ready[unit]:
                continue
            for start, size, stop in places:
                a, b = start + (size * unit << UNIT), start + (size * (unit + 1) << UNIT)
                if not intact(data, sums, seen, a, min(b, stop)):
                    return False
            ready[unit] = 1
    return True


@inlined
def prefetch_buckets(copies: Words, begin: NDArray[np.int64], end: NDArray[np.int64], number: int) -> None:
    for p in range(number):
        for line in range(begin[p], min(begin[p] + AHEAD, end[p]), 8):
            prefetch(copies, line)


@compiled
def _expected(first: int, last: int, cuts: Cuts, items: int) -> float:
    """The number of items that the steps look at if codes are uniform: Σ C(width, a)·(N/2^width + cost of a lookup)."""
    total = 0.0
    for step in range(first, last + 1):
        weight, width = step // len(cuts), cuts[step % len(cuts), 2]
        buckets = 1.0
        for i in range(weight):
            buckets *= (width - i) / (i + 1)
        total += buckets * (items / (1 << width) + PROBE_COST)
    return total


@compiled
def search_tables(
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

    `ready` is 1 for units of entries that have been compared with their checksums; empty where there are no checksums.
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
            probes, all_ready = 0, np.uint8(1)
            while mask < bound and probes < PROBES:
                bucket = starts[j] + np.int64(value ^ mask)
                a, b = min(np.int64(offsets[bucket]), items), min(np.int64(offsets[bucket + 1]), items)
                begin[probes], end[probes] = a, b
                if checked and a < b:
                    all_ready &= are_ready(j * items + a, j * items + b, ready)
                probes += 1
                mask = bound if mask == 0 else _next_mask(mask)
            if not all_ready and not check_buckets(j * items, begin, end, probes, ready, data, sums, seen, places):
                return DAMAGED
            if fast:
                prefetch_buckets(copies[j], begin, end, probes)
            for p in range(probes):
                spent += end[p] - begin[p] + PROBE_COST
                lower, upper = low[j, begin[p] : end[p]], high[j, begin[p] : end[p]]
                if fast:
                    bucket_codes = copies[j, begin[p] : end[p]]
                    _narrow_bucket(query, bucket_codes, lower, upper, cuts, j, weight, allowed, heap)
                elif len(query) == 1:
                    for a in range(0, len(lower), GATHER):
                        low_part, high_part = lower[a : a + GATHER], upper[a : a + GATHER]
                        for i in range(len(low_part)):  # fetched before they are compared, so that cache misses overlap
                            gathered[i] = narrow[min(np.int64(low_part[i]) | np.int64(high_part[i]) << 16, items - 1)]
                        _narrow_bucket(
                            query, gathered[: len(low_part)], low_part, high_part, cuts, j, weight, allowed, heap
                        )
                else:
                    _wide_bucket(query, codes, lower, upper, cuts, j, weight, allowed, heap)
            if spent > budget:
                return -spent
        step += 1
