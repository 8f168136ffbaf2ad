"""Average precision and hits from histograms by distance, in closed form under each tie rule.

A distance d holds n items, r of them relevant; N items, R of them relevant, lie nearer. The rules say in which order
the n items rank:

    expected      every order is equally likely: the exact expectation, no sampling (McSherry & Najork, ECIR 2008)
    optimistic    the relevant ones first
    pessimistic   the relevant ones last
    stable        the order of the database (`stable.py`; a histogram does not know it)

AP@k is divided by min(k, number of relevant items), so that a ranking scores 1 exactly when its first
min(k, relevant) items are all relevant. With k = None (@ALL) that is the number of relevant items. Other code
divides by the relevant items *found* in the first k, which rewards a ranking for finding one and no more.
"""

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import DataError
from kenthash.evaluation.inputs import Ties
from kenthash.evaluation.kernels import Counts

Scores = NDArray[np.float64]

EVERYTHING = np.iinfo(np.int64).max // 4  # the cut-off of @ALL: past the end of any database

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
    """mAP: the mean over the queries that have a relevant item. Without any there is none, and no number is made up."""
    scored = ap[~np.isnan(ap)]
    if not len(scored):
        raise DataError(
            f"none of the {len(ap)} queries shares a label with any database item: there is no mAP to report"
        )
    return float(scored.mean())


def hits_at(relevant: Counts, total: Counts, ties: Ties, k: int) -> Scores:
    """Relevant items among the first k of each query [q]. Precision@k is this by k, recall@k by all relevant."""
    n, r = total, relevant
    J = np.clip(k - nearer(n), 0, n)
    if ties == "expected":
        return np.asarray((J * (r / np.maximum(n, 1))).sum(axis=1))
    found = np.minimum(J, r) if ties == "optimistic" else np.maximum(J - (n - r), 0)
    return np.asarray(found.sum(axis=1), np.float64)
