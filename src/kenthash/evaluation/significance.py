"""How certain a score is: bootstrap intervals over queries, and a paired test between two runs.

Both take scores per query, in which NaN marks a query that was left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kenthash.errors import DataError
from kenthash.evaluation.measures import Scores

RESAMPLES = 1_000
FLIPS = 10_000
LEVEL = 0.95

_AT_ONCE = 1 << 22  # random numbers held at a time


def bootstrap_interval(scores: Scores, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the mean, queries drawn with replacement (Efron & Tibshirani 1993, ch. 13).

    Example:

        >>> low, high = bootstrap_interval(np.arange(100) / 100)
        >>> low < 0.495 < high and high - low < 0.12
        True
    """
    kept = scores[~np.isnan(scores)]
    if not len(kept):
        raise DataError("no query has a score: there is nothing to draw an interval from")
    rng = np.random.default_rng(seed)
    means = [
        kept[rng.integers(0, len(kept), (rows, len(kept)))].mean(axis=1) for rows in _batches(RESAMPLES, len(kept))
    ]
    low, high = np.quantile(np.concatenate(means), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class PairedTest:
    """Run a against run b on the same queries. `p_value` is two-sided: the chance of a mean difference at least this
    large if the sign of every query's difference were a coin toss."""

    difference: float  # mean of a − b
    low: float
    high: float
    p_value: float
    queries: int


def paired_test(a: Scores, b: Scores, seed: int = 0) -> PairedTest:
    """Sign-flip permutation test on per-query scores, with a bootstrap interval of the mean difference.

    p = (1 + flips at least as extreme) / (1 + flips), which is never 0 and valid for any number of flips
    (Phipson & Smyth 2010).

    Example:

        >>> scores = np.linspace(0, 1, 200)
        >>> better = paired_test(scores + 0.01, scores)
        >>> round(better.difference, 4), better.p_value < 0.001, paired_test(scores, scores).p_value
        (0.01, True, 1.0)
    """
    if a.shape != b.shape or a.ndim != 1:
        raise DataError(f"paired test: {a.shape} and {b.shape} scores; both runs must score the same queries")
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        raise DataError("paired test: the runs leave out different queries, so they were not scored on the same split")
    difference = (a - b)[~np.isnan(a)]
    low, high = bootstrap_interval(difference, seed)
    rng = np.random.default_rng(seed)
    observed = abs(difference.sum())
    tolerance = 1e-12 * np.abs(difference).sum()  # equal sums must not differ by the order of addition
    extreme = 0
    for rows in _batches(FLIPS, len(difference)):
        signs = rng.integers(0, 2, (rows, len(difference)), dtype=np.int8) * 2.0 - 1.0
        extreme += int((np.abs(signs @ difference) >= observed - tolerance).sum())
    return PairedTest(float(difference.mean()), low, high, (1 + extreme) / (1 + FLIPS), len(difference))


def _batches(total: int, width: int) -> Iterator[int]:
    step = max(1, _AT_ONCE // width)
    for start in range(0, total, step):
        yield min(step, total - start)
