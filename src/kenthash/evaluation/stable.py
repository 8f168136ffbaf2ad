"""The stable tie rule: items at one distance rank in the order of the database, as a stable sort leaves them.

It depends on how the database happens to be ordered, so it is not the default; it serves comparison with numbers that
were made by sorting. A histogram does not know the order of items, so this rule takes a second pass over the codes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kenthash.evaluation.histograms import BLOCK, Chunk, Counts, Histograms, Words, compare_block, run_over_database
from kenthash.evaluation.inputs import Retrieval
from kenthash.evaluation.measures import EVERYTHING, Scores, nearer, normalise
from kenthash.jit import compiled

RANK = 1 << 32  # see `_advance`


def stable_scores(
    task: Retrieval, histograms: Histograms, ks: Sequence[int | None], device: str = "cpu"
) -> tuple[Scores, Scores]:
    """(AP@k, hits@k), each [q, len(ks)], of the queries of `histograms`; k = None is @ALL."""
    cutoffs = np.array([EVERYTHING if k is None else k for k in ks], np.int64)
    order = np.argsort(cutoffs)
    first, last, relevant = histograms.first, histograms.queries.stop, histograms.relevant
    rank, relevant_before = nearer(histograms.total), nearer(relevant)
    if device == "cpu":
        state = np.pad(rank * RANK + relevant_before, ((0, 0), (0, 1))).astype(np.uint64)
        sums = np.zeros((len(relevant), len(ks)))
        hits = np.zeros((len(relevant), len(ks)), np.int64)
        run_over_database(task, first, last, rank_items, cutoffs[order], state, sums, hits)
    else:
        from kenthash.evaluation.torch_backend import rank_items_torch

        sums, hits = rank_items_torch(device, task, first, last, rank, relevant_before, cutoffs[order])
    sums[:, order], hits[:, order] = sums.copy(), hits.copy()  # back to the order of `ks`
    ap = np.stack([normalise(sums[:, i], relevant.sum(axis=1), k) for i, k in enumerate(ks)], axis=1)
    return ap, hits.astype(np.float64)


@compiled
def _advance(distance: NDArray[np.uint32], shared: NDArray[np.uint32], state: Words, out: Words) -> int:
    """Rank the items of a block in their order, write the state after each relevant one to `out`, return their number.

    A state holds a rank in its upper 32 bits and the number of relevant items so far in its lower ones, so that one
    addition advances both, and there is no branch to mispredict. Ranks stay below 2³¹.
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
    """Move the states of rank up to the cut-off to the front; return their number."""
    count = 0
    for j in range(len(states)):
        if np.int64(states[j] >> np.uint64(32)) <= cutoff:
            states[count] = states[j]
            count += 1
    return count


@compiled
def _precision_sum(states: Words) -> float:
    """Σ found/rank."""
    halves = states.view(np.int32)
    total = 0.0
    for j in range(len(states)):
        total += halves[2 * j] / halves[2 * j + 1]
    return total


@compiled
def rank_items(
    chunk: Chunk,
    first: int,
    last: int,
    cutoffs: Counts,
    state: Words,
    precision_sum: NDArray[np.float64],
    hits: Counts,
) -> None:
    """The second pass over the codes, for the queries first to last.

    state[q, d] = rank·2³² + found holds how many items, and how many relevant ones, precede the next item at distance
    d; it starts as the counts of all smaller distances. Its last column takes the query's own item. For each cut-off
    (ascending), precision_sum[q, c] sums found/rank over every relevant item of rank up to it, and hits[q, c] is their
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
            compare_block(chunk, q, start, 2, d, shared[: 64 * span], either[:span])
            if start <= own[q] < start + n:
                d[own[q] - start], s[own[q] - start] = state.shape[1] - 1, 0
            m = _advance(d, s, state[q], relevant)
            for c in range(len(cutoffs) - 1, -1, -1):  # from the largest on, so that few are left for the small ones
                if cutoffs[c] < RANK:
                    m = _keep(relevant[:m], cutoffs[c])
                precision_sum[q, c] += _precision_sum(relevant[:m])
                hits[q, c] += m
