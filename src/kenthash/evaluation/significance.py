"""How sure a number is.

Of two trained models: bootstrap intervals and a paired test over queries, from per-query scores in which NaN marks a
query that was left out. Of two methods: a paired test over seeds, each of which is a split and a model of both. Queries
of one model are not independent trials of its method, so they say nothing of how another seed would end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from kenthash.errors import DataError
from kenthash.evaluation.measures import Scores

RESAMPLES = 1_000
FLIPS = 10_000
LEVEL = 0.95
MOST_SEEDS = 20

_AT_ONCE = 1 << 22  # random numbers held at a time


def bootstrap_interval(scores: Scores, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the mean, queries drawn with replacement (Efron & Tibshirani 1993, ch. 13).

    Example:

        >>> low, high = bootstrap_interval(np.arange(100) / 100)
        >>> low < 0.495 < high and high - low < 0.12
        True
    """
    valid = scores[~np.isnan(scores)]
    if not len(valid):
        raise DataError("no query has a score: there is nothing to draw an interval from")
    rng = np.random.default_rng(seed)
    means = [
        valid[rng.integers(0, len(valid), (rows, len(valid)))].mean(axis=1) for rows in _batches(RESAMPLES, len(valid))
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


@dataclass(frozen=True)
class SeedTest:
    """Method a against method b, one score each for every seed. `p_value` is two-sided, and exact up to 20 seeds."""

    difference: float  # mean of a − b
    low: float  # 95 % interval of that mean over seeds, by Student's t
    high: float
    p_value: float
    seeds: int


def seed_test(a: Sequence[float], b: Sequence[float]) -> SeedTest:
    """The sign-flip test over seeds, of all 2ⁿ signs: the smallest p that n seeds can give is 2^(1−n). Of more than 20
    seeds 10,000 random ones are tried, as in `paired_test`.

    Example:

        >>> test = seed_test([0.71, 0.73, 0.72, 0.74, 0.72, 0.73], [0.70, 0.71, 0.71, 0.72, 0.71, 0.71])
        >>> round(test.difference, 4), test.p_value  # ahead with all six seeds: 2 of 64 signs are as extreme
        (0.015, 0.03125)
    """
    if len(a) != len(b) or not len(a):
        raise DataError(f"test over seeds: {len(a)} and {len(b)} scores; both methods need the same seeds")
    difference = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    n = len(difference)
    if n <= MOST_SEEDS:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    else:  # the first are those of the difference itself
        flips = np.random.default_rng(0).integers(0, 2, (1 + FLIPS, n))
        signs = 1.0 - 2.0 * flips * (np.arange(1 + FLIPS) > 0)[:, None]
    tolerance = 1e-12 * np.abs(difference).sum()
    p_value = float(np.mean(np.abs(signs @ difference) >= abs(difference.sum()) - tolerance))
    mean = float(difference.mean())
    reach = float(stdtrit(n - 1, (1 + LEVEL) / 2) * difference.std(ddof=1) / np.sqrt(n)) if n > 1 else np.inf
    return SeedTest(mean, mean - reach, mean + reach, p_value, n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p corrected for having made all these tests (Holm 1979).

    Example:

        >>> holm([0.01, 0.04, 0.02])
        [0.03, 0.04, 0.04]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _batches(total: int, width: int) -> Iterator[int]:
    step = max(1, _AT_ONCE // width)
    for start in range(0, total, step):
        yield min(step, total - start)
