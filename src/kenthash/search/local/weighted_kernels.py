"""The compiled kernels of weighted distances: the scan, multi-index hashing in the order of weights, and the first of
two stages.

They compute what `scan` and `mih` say, and like `kernels` are imported only where they run. Planes [8, W] hold the bits
of the weights. A lower bound of a distance, 16 · Σ_{b≥4} 2^(b−4) · popcount(difference & plane b), takes half the work
and leaves out nearly all items.
"""

import numpy as np
from numpy.typing import NDArray

from kenthash.jit import compiled, popcount, prefetch
from kenthash.search.local.kernels import (
    DAMAGED,
    GATHER,
    PROBE_COST,
    PROBES,
    RUN,
    are_ready,
    check_buckets,
    is_allowed,
    offer,
    prefetch_buckets,
)
from kenthash.search.local.mih import Cuts, Flags, High, Low, Places
from kenthash.search.local.scan import Keys, Slots, Words
from kenthash.search.queries import BIT_PLANES, Weights

Bounds = NDArray[np.int64]
CODES_AHEAD = 16  # codes that are prefetched before they are needed
GROUP = 16  # items of a run of which it is first tested whether any is near enough


@compiled
def distance(query: Words, code: Words, planes: Words) -> np.int64:
    total = np.int64(0)
    for w in range(len(query)):
        apart = query[w] ^ code[w]
        for b in range(8):
            total += np.int64(popcount(apart & planes[b, w])) << b
    return total


@compiled
def differing(query: Words, code: Words) -> np.int64:
    total = np.int64(0)
    for w in range(len(query)):
        total += np.int64(popcount(query[w] ^ code[w]))
    return total


@compiled
def _lower_bounds(query: Words, planes: Words, run: Words, out: Bounds) -> None:
    """Sixteenths of the lower bounds of the codes of a run, given as one row of words."""
    words = len(query)
    if words == 1:
        word, p4, p5, p6, p7 = query[0], planes[4, 0], planes[5, 0], planes[6, 0], planes[7, 0]
        for i in range(len(out)):
            apart = word ^ run[i]
            lower = np.int64(popcount(apart & p4)) + (np.int64(popcount(apart & p5)) << 1)
            upper = np.int64(popcount(apart & p6)) + (np.int64(popcount(apart & p7)) << 1)
            out[i] = lower + (upper << 2)
        return
    for i in range(len(out)):
        total = np.int64(0)
        for w in range(words):
            apart = query[w] ^ run[i * words + w]
            for b in range(4):
                total += np.int64(popcount(apart & planes[b + 4, w])) << b
        out[i] = total


@compiled
def _least(bounds: Bounds) -> np.int64:
    least = np.int64(1 << 40)
    for i in range(len(bounds)):
        least = min(least, bounds[i])
    return least


@compiled
def scan(
    queries: Words, planes: Words, radius: int, codes: Words, start: int, stop: int, allowed: Words, heaps: Keys
) -> None:
    """Offer the items start to stop to every query: queries [Q, W], planes [Q, 8, W], codes [N, W], heaps [Q, k]."""
    words = codes.shape[1]
    row = codes.reshape(codes.size)
    buffer = np.empty(RUN, np.int64)
    for a in range(start, stop, RUN):
        out = buffer[: min(RUN, stop - a)]
        run = row[a * words : (a + len(out)) * words]
        for q in range(len(queries)):
            heap = heaps[q]
            _lower_bounds(queries[q], planes[q], run, out)
            # Slots ascend, so an item as far away as the root cannot replace it.
            limit = (np.int64(heap[0] >> np.uint64(32)) + 15) >> 4
            if _least(out) >= limit:
                continue
            for g in range(0, len(out), GROUP):
                group = out[g : g + GROUP]
                if _least(group) >= limit:
                    continue
                for i in range(g, g + len(group)):
                    if out[i] < limit:
                        code = run[i * words : (i + 1) * words]
                        key = np.uint64(distance(queries[q], code, planes[q])) << np.uint64(32) | np.uint64(a + i)
                        if key < heap[0] and differing(queries[q], code) <= radius and is_allowed(a + i, allowed):
                            offer(key, heap)


# Multi-index hashing. Let d_j be the part of a distance that substring j contributes. In each round the buckets of all
# tables with d_j up to a threshold τ are looked up. Items that no round has met have d_j ≥ τ + 1 in all m substrings,
# so their distance is at least m (τ + 1): once that is more than the k-th best, the search is over.


@compiled
def _advance(
    stack: NDArray[np.int64], depth: int, total: int, mask: np.uint64, sums: NDArray[np.int64], bits: Words, most: int
) -> tuple[int, int, np.uint64]:
    """The next subset of bits, by the positions on the stack, whose weights add up to at most `most`; depth −1 after
    the last. `sums` are the weights of one substring in ascending order, `bits` their bits."""
    width = len(sums)
    following = stack[depth - 1] + 1 if depth else 0
    if following < width and total + sums[following] <= most:
        stack[depth] = following
        return depth + 1, total + sums[following], mask | bits[following]
    while depth:
        last = stack[depth - 1]
        total, mask = total - sums[last], mask ^ bits[last]
        if last + 1 < width and total + sums[last + 1] <= most:
            stack[depth - 1] = last + 1
            return depth, total + sums[last + 1], mask | bits[last + 1]
        depth -= 1
    return -1, 0, mask


@compiled
def _count_subsets(sums: NDArray[np.int64], bits: Words, most: int, cap: int, stack: NDArray[np.int64]) -> int:
    """The number of subsets with a sum of at most `most`, counted up to `cap`."""
    number, depth, total, mask = 0, 0, 0, np.uint64(0)
    while depth >= 0 and number < cap:
        number += 1
        depth, total, mask = _advance(stack, depth, total, mask, sums, bits, most)
    return number


@compiled
def _expected(
    ordered: NDArray[np.int64], bits: Words, cuts: Cuts, items: int, most: int, budget: int, stack: NDArray[np.int64]
) -> float:
    """The number of items that are looked at up to a threshold if codes are uniform, or more than `budget`."""
    total = 0.0
    for j in range(len(cuts)):
        each = PROBE_COST + items / (1 << cuts[j, 2])
        total += each * _count_subsets(ordered[j, : cuts[j, 2]], bits[j], most, int(budget / each) + 2, stack)
    return total


@compiled
def _is_first(query: Words, planes: Words, code: Words, cuts: Cuts, table: int, reached: int, threshold: int) -> bool:
    """Whether an item, met in a table in the round of `threshold`, was met neither in an earlier round, whose
    threshold was `reached`, nor in an earlier table."""
    for i in range(len(cuts)):
        if i == table:
            continue
        mask = np.uint64((1 << cuts[i, 2]) - 1) << np.uint64(cuts[i, 1])
        apart = (query[cuts[i, 0]] ^ code[cuts[i, 0]]) & mask
        part = np.int64(0)
        for b in range(8):
            part += np.int64(popcount(apart & planes[b, cuts[i, 0]])) << b
        if part <= (threshold if i < table else reached):
            return False
    return True


@compiled
def _bucket(
    query: Words,
    planes: Words,
    radius: int,
    codes: Words,
    low: Low,
    high: High,
    cuts: Cuts,
    table: int,
    reached: int,
    threshold: int,
    allowed: Words,
    heap: Keys,
    buffer: Bounds,
) -> None:
    """Offer the items of a bucket to the heap; their codes are in one row of words."""
    words = len(query)
    for a in range(0, len(low), RUN):
        out = buffer[: min(RUN, len(low) - a)]
        run = codes[a * words : (a + len(out)) * words]
        _lower_bounds(query, planes, run, out)
        for i in range(len(out)):
            if out[i] << 4 > np.int64(heap[0] >> np.uint64(32)):
                continue
            code = run[i * words : (i + 1) * words]
            slot = int(low[a + i]) | int(high[a + i]) << 16
            key = np.uint64(distance(query, code, planes)) << np.uint64(32) | np.uint64(slot)
            if (
                key < heap[0]
                and differing(query, code) <= radius
                and _is_first(query, planes, code, cuts, table, reached, threshold)
                and is_allowed(slot, allowed)
            ):
                offer(key, heap)


@compiled
def search_tables(
    query: Words,
    planes: Words,
    weights: Weights,
    radius: int,
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
    """The number of items looked at; negative where it gave up, DAMAGED where a table is not as it was written. `ready`
    as in `kernels.search_tables`."""
    m, words, items = len(cuts), len(query), low.shape[1]
    begin, end = np.empty(PROBES, np.int64), np.empty(PROBES, np.int64)
    gathered, buffer, every = np.empty(GATHER * words, np.uint64), np.empty(RUN, np.int64), codes.reshape(codes.size)
    fast, checked = copies.shape[1] > 0, len(ready) > 0
    widest = 0
    for j in range(m):
        widest = max(widest, cuts[j, 2])
    stack = np.empty(widest + 1, np.int64)
    ordered, bits = np.empty((m, widest), np.int64), np.empty((m, widest), np.uint64)
    for j in range(m):
        first = 64 * cuts[j, 0] + cuts[j, 1]
        for bit in range(cuts[j, 2]):  # sorted by insertion
            weight, i = np.int64(weights[first + bit]), bit
            while i > 0 and ordered[j, i - 1] > weight:
                ordered[j, i], bits[j, i] = ordered[j, i - 1], bits[j, i - 1]
                i -= 1
            ordered[j, i], bits[j, i] = weight, np.uint64(1) << np.uint64(bit)
    lightest = 0  # a threshold that some subsets of each table do not exceed
    for j in range(m):
        lightest += ordered[j, min(3, cuts[j, 2] - 1)] // m
    spent, reached, threshold = 0, -1, 0
    while True:
        for j in range(m):
            width = cuts[j, 2]
            value = (query[cuts[j, 0]] >> np.uint64(cuts[j, 1])) & ((np.uint64(1) << np.uint64(width)) - np.uint64(1))
            depth, total, mask = 0, 0, np.uint64(0)
            while depth >= 0:
                probes, all_ready = 0, np.uint8(1)
                while depth >= 0 and probes < PROBES:
                    if total > reached:
                        bucket = starts[j] + np.int64(value ^ mask)
                        a, b = min(np.int64(offsets[bucket]), items), min(np.int64(offsets[bucket + 1]), items)
                        begin[probes], end[probes] = a, b
                        if checked and a < b:
                            all_ready &= are_ready(j * items + a, j * items + b, ready)
                        probes += 1
                    depth, total, mask = _advance(stack, depth, total, mask, ordered[j, :width], bits[j], threshold)
                if not all_ready and not check_buckets(j * items, begin, end, probes, ready, data, sums, seen, places):
                    return DAMAGED
                if fast:
                    prefetch_buckets(copies[j], begin, end, probes)
                for p in range(probes):
                    spent += end[p] - begin[p] + PROBE_COST
                    lower, upper = low[j, begin[p] : end[p]], high[j, begin[p] : end[p]]
                    if fast:
                        _bucket(
                            query, planes, radius, copies[j, begin[p] : end[p]], lower, upper, cuts, j, reached,
                            threshold, allowed, heap, buffer,
                        )  # fmt: skip
                        continue
                    for a in range(0, len(lower), GATHER):
                        low_part, high_part = lower[a : a + GATHER], upper[a : a + GATHER]
                        for i in range(len(low_part)):  # fetched before they are compared, so that cache misses overlap
                            slot = min(np.int64(low_part[i]) | np.int64(high_part[i]) << 16, items - 1)
                            for w in range(words):
                                gathered[i * words + w] = every[slot * words + w]
                        _bucket(
                            query,
                            planes,
                            radius,
                            gathered,
                            low_part,
                            high_part,
                            cuts,
                            j,
                            reached,
                            threshold,
                            allowed,
                            heap,
                            buffer,
                        )
                if spent > budget:
                    return -spent
        target = int(heap[0] >> np.uint64(32)) // m  # the least threshold that proves the k best so far
        if threshold >= target:
            return spent
        if spent > free:
            uneven = max(spent / _expected(ordered, bits, cuts, items, threshold, budget, stack), 1.0)
            if uneven * _expected(ordered, bits, cuts, items, target, budget, stack) > budget:
                return -spent
        reached, threshold = (
            threshold,
            min(target, max(threshold + 1, min((threshold + target + 1) >> 1, max(2 * threshold, lightest)))),
        )


# The first of two stages: all codes within a bound, and the distances of codes in some slots. Planes of weights are
# [8, W], or fewer where the lower ones do not count, or none, [0, W], where every bit counts 1.


@compiled
def _distance_by(query: Words, planes: Words, code: Words) -> np.int64:
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
def distances_of_slots(query: Words, planes: Words, codes: Words, slots: Slots, out: Bounds) -> None:
    """The distances of the codes in some slots."""
    words = codes.shape[1]
    row = codes.reshape(codes.size)
    for i in range(len(slots)):
        if i + CODES_AHEAD < len(slots):
            prefetch(row, slots[i + CODES_AHEAD] * words)
        out[i] = _distance_by(query, planes, row[slots[i] * words : (slots[i] + 1) * words])


@compiled
def _plain_bounds(query: Words, run: Words, out: Bounds) -> None:
    words = len(query)
    for i in range(len(out)):
        total = np.int64(0)
        for w in range(words):
            total += np.int64(popcount(query[w] ^ run[i * words + w]))
        out[i] = total


@compiled
def within_limit(
    query: Words,
    planes: Words,
    codes: Words,
    start: int,
    stop: int,
    allowed: Words,
    limit: int,
    slots: Slots,
    out: Bounds,
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
                    out[number] = _distance_by(query, planes, run[i * words : (i + 1) * words])
                    number += 1
    return number
