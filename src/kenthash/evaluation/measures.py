"""The measures of a retrieval: average precision, hits, NDCG and curves per query, groups of queries, use of bits.

Scores of queries are computed in closed form from histograms by distance. A distance d holds n items, r of them
relevant; N items, R of them relevant, are nearer. The tie rules say in which order the n items rank:

    expected      every order is equally likely: the exact expectation, no sampling (McSherry & Najork, ECIR 2008)
    optimistic    the relevant ones first
    pessimistic   the relevant ones last
    stable        the order of the database (`stable.py`; a histogram does not know it)

AP@k is divided by min(k, number of relevant items), so that a ranking scores 1 exactly when its first
min(k, relevant) items are all relevant. With k = None (@ALL) that is the number of relevant items. Other code
divides by the relevant items *found* in the first k, which rewards a ranking for finding one and no more.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.errors import DataError
from kenthash.evaluation.histograms import Counts
from kenthash.evaluation.inputs import Labels, Ties, check_codes

Scores = NDArray[np.float64]

EVERYTHING = np.iinfo(np.int64).max // 4  # the cut-off of @ALL: past the end of any database
RECALL_LEVELS = np.arange(1, 101) / 100
ROWS = 1 << 14  # codes unpacked at a time; counts of that many are exact in float32

_TABLE = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, 64))])  # harmonic numbers 0 to 63


def harmonic_span(start: Counts, count: Counts) -> Scores:
    """Σ_{j=1..count} 1/(start + j), without loss of digits however large `start` is.

    Up to 63 from a table; beyond it H(m) = γ + ln x + 1/(24x²) − 7/(960x⁴) + 31/(8064x⁶) − ..., x = m + ½, whose
    next term is below 1e-16, and the difference of the two logarithms is one log1p.
    """
    last = len(_TABLE) - 1
    end = start + count
    below = _TABLE[np.minimum(end, last)] - _TABLE[np.minimum(start, last)]
    a, b = np.maximum(start, last), np.maximum(end, last)
    return np.asarray(below + np.log1p((b - a) / (a + 0.5)) + _tail(b) - _tail(a))


def _tail(m: Counts) -> Scores:
    y = 1.0 / (m + 0.5) ** 2
    return np.asarray(y * (1 / 24 - y * (7 / 960 - y * (31 / 8064))))


def nearer(counts: Counts) -> Counts:
    """Counts at all smaller distances: N and R of the formulas."""
    return np.cumsum(counts, axis=1) - counts


def average_precision(relevant: Counts, total: Counts, ties: Ties, k: int | None = None) -> Scores:
    """AP@k of each query [q] from histograms [q, distances]; NaN for a query without a relevant item.

    expected      (r/n) Σ_{j=1..J} [R + 1 + (j−1)(r−1)/(n−1)] / (N+j),  J = positions of the distance within k:
                  the item at position j is relevant with probability r/n, and then has R + 1 relevant ones up to
                  and with itself plus each of the j−1 before it with probability (r−1)/(n−1)
    optimistic    Σ_{i=1..m} (R+i)/(N+i),      m = relevant ones within k
    pessimistic   Σ_{i=1..m} (R+i)/(N+n−r+i)
    """
    n, r, cutoff = total, relevant, EVERYTHING if k is None else k
    N, R = nearer(n), nearer(r)
    if ties == "expected":
        J = np.clip(cutoff - N, 0, n)
        span = harmonic_span(N, J)
        beside = np.maximum(r - 1, 0) / np.maximum(n - 1, 1)
        sums = (r / np.maximum(n, 1)) * ((R + 1) * span + beside * (J - (N + 1) * span))
    else:
        before = N if ties == "optimistic" else N + n - r
        m = np.clip(cutoff - before, 0, r)
        sums = m + (R - before) * harmonic_span(before, m)
    return normalise(sums.sum(axis=1), relevant.sum(axis=1), k)


def normalise(precision_sum: Scores, relevant: Counts, k: int | None) -> Scores:
    """Divide by min(k, relevant); NaN without a relevant item."""
    best = relevant if k is None else np.minimum(relevant, k)
    return np.where(best > 0, precision_sum / np.maximum(best, 1), np.nan)


def mean_ap(ap: Scores) -> float:
    """mAP: the mean over the queries that have a relevant item; an error where no query has one."""
    scored = ap[~np.isnan(ap)]
    if not len(scored):
        raise DataError(
            f"none of the {len(ap)} queries shares a label with any database item: there is no mAP to report"
        )
    return float(scored.mean())


def hits_at(relevant: Counts, total: Counts, ties: Ties, k: int) -> Scores:
    """Relevant items among the first k of each query [q]; precision@k divides this by k, recall@k by all relevant."""
    n, r = total, relevant
    J = np.clip(k - nearer(n), 0, n)
    if ties == "expected":
        return np.asarray((J * (r / np.maximum(n, 1))).sum(axis=1))
    hits = np.minimum(J, r) if ties == "optimistic" else np.maximum(J - (n - r), 0)
    return np.asarray(hits.sum(axis=1), np.float64)


def ndcg_at(counts: Counts, k: int) -> Scores:
    """NDCG@k of each query from counts [q, distances, grades]; NaN without a relevant item.

    The grade of an item is the number of labels it shares with the query. DCG@k = Σ_{i≤k} (2^grade_i − 1)/log₂(1 + i),
    divided by that of the best possible ranking (Järvelin & Kekäläinen 2002; with shared labels as grades: Zhao et al.,
    CVPR 2015). Ties count by expectation: every item at a distance is equally likely at each of its positions, so it
    contributes the mean gain of that distance.
    """
    top = counts.shape[2] - 1
    # 2^grade − 1, scaled by 2^−top so that no number of labels overflows; the ratio does not change.
    gains = np.exp2(np.arange(top + 1) - top) - np.exp2(-top)
    total = counts.sum(axis=2)
    discounts = _discount_sums(min(k, int(total.sum(axis=1).max(initial=0))))

    first = np.minimum(nearer(total), k)
    last = np.minimum(nearer(total) + total, k)
    mean_gain = (counts @ gains) / np.maximum(total, 1)
    dcg = (mean_gain * (discounts[last] - discounts[first])).sum(axis=1)

    by_grade = counts.sum(axis=1)[:, ::-1]  # the best ranking: highest grades first
    first, last = np.minimum(nearer(by_grade), k), np.minimum(nearer(by_grade) + by_grade, k)
    ideal = ((discounts[last] - discounts[first]) * gains[::-1]).sum(axis=1)
    return np.where(ideal > 0, dcg / np.where(ideal > 0, ideal, 1.0), np.nan)


def _discount_sums(k: int) -> Scores:
    """Σ_{i≤j} 1/log₂(1 + i) for j = 0 to k."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, k + 2)))])


def precision_at_recall(relevant: Counts, total: Counts, levels: Scores = RECALL_LEVELS) -> Scores:
    """Precision [q, levels] where each query's expected recall reaches a level; NaN without a relevant item.

    In the expected order, the first x items hold R + r·(x − N)/n of the relevant ones; a level is reached at the
    smallest x that holds its share of them, and the precision there is share/x. Shares below one item count as one
    item, the least that can be retrieved. Averaged over queries this is the precision-recall curve.
    """
    everything = relevant.sum(axis=1)
    N, R = nearer(total), nearer(relevant)
    rows = np.arange(len(relevant))
    precision = np.full((len(relevant), len(levels)), np.nan)
    for i, level in enumerate(levels):
        share = np.maximum(level * everything, 1.0)
        # The tolerance keeps a share that rounding puts just above a whole number at its own distance.
        d = np.minimum((R + relevant < share[:, None] - 1e-9).sum(axis=1), relevant.shape[1] - 1)
        n, r = total[rows, d], np.maximum(relevant[rows, d], 1)
        x = N[rows, d] + (share - R[rows, d]) * n / r
        precision[:, i] = share / np.maximum(x, 1e-300)
    precision[everything == 0] = np.nan
    return precision


def within_radius(relevant: Counts, total: Counts, radius: int) -> tuple[Scores, Counts]:
    """(precision among the items within a Hamming radius, number of those items), each [q].

    A query that finds nothing within the radius has precision 0 (the convention of Liu et al., CVPR 2012).
    """
    retrieved = total[:, : radius + 1].sum(axis=1)
    hits = relevant[:, : radius + 1].sum(axis=1)
    return hits / np.maximum(retrieved, 1), retrieved


@dataclass(frozen=True)
class Group:
    """The mAP of some of the queries, and their number. `map` is NaN where there are none."""

    map: float
    queries: int


def by_class(ap: Scores, labels: Labels) -> list[Group]:
    """For each class, the queries that carry it. A class that no scored query carries has 0 queries and no mAP."""
    return [_group(ap, labels[:, c] != 0) for c in range(labels.shape[1])]


def by_label_count(ap: Scores, labels: Labels) -> dict[int, Group]:
    """For each number of labels that occurs among scored queries, the queries with that many."""
    number = (labels != 0).sum(axis=1)
    return {int(n): _group(ap, number == n) for n in np.unique(number[~np.isnan(ap)])}


def _group(ap: Scores, members: NDArray[np.bool_]) -> Group:
    scores = ap[members & ~np.isnan(ap)]
    return Group(float(scores.mean()) if len(scores) else float("nan"), len(scores))


@dataclass(frozen=True)
class BitUse:
    """`ones[i]` is the share of items whose bit i is 1. `balance` is the mean over bits of 1 − |2·ones − 1|: 1 when
    every bit halves the items, 0 when every bit is constant. `correlation` is the mean absolute Pearson correlation
    of two different bits (NaN with fewer than two that vary); constant bits have none and are counted in `constant`.
    """

    ones: NDArray[np.float64]
    balance: float
    correlation: float
    constant: int


def bit_use(codes: Codes) -> BitUse:
    check_codes("database", codes)
    n, bits = len(codes), 8 * codes.shape[1]
    both = np.zeros((bits, bits))  # how often bits i and j are 1 together
    for start in range(0, n, ROWS):
        on = np.unpackbits(codes[start : start + ROWS], axis=1, bitorder="little").astype(np.float32)
        both += on.T @ on
    ones = np.diag(both) / n
    varying = (ones > 0) & (ones < 1)
    p = ones[varying]
    covariance = both[np.ix_(varying, varying)] / n - np.outer(p, p)
    spread = np.sqrt(p * (1 - p))
    r = np.abs(covariance / np.outer(spread, spread))
    m = len(p)
    correlation = float((r.sum() - np.trace(r)) / (m * (m - 1))) if m > 1 else float("nan")
    return BitUse(ones, float((1 - np.abs(2 * ones - 1)).mean()), correlation, bits - m)
