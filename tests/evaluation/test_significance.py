"""Intervals and the paired test against theory and a full enumeration; the choice of epochs by hand."""

from itertools import product

import numpy as np
import pytest

from kenthash.errors import DataError
from kenthash.evaluation import bootstrap_interval, paired_test
from kenthash.evaluation.protocols import EpochScore, PaperNumber, honest_epoch, paper_number


def test_bootstrap_agrees_with_the_normal_interval() -> None:
    scores = np.random.default_rng(0).beta(2, 3, 4_000)
    low, high = bootstrap_interval(np.append(scores, np.nan))
    half = 1.96 * scores.std() / np.sqrt(len(scores))
    assert low == pytest.approx(scores.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(scores.mean() + half, abs=0.1 * half)
    assert bootstrap_interval(np.full(5, 0.25)) == (0.25, 0.25)


def test_sign_flips_agree_with_all_of_them() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random(10), rng.random(10) - 0.25
    difference = a - b
    flipped = [abs(np.dot(signs, difference)) for signs in product((-1, 1), repeat=10)]
    exact = np.mean([value >= abs(difference.sum()) - 1e-12 for value in flipped])
    result = paired_test(np.append(a, np.nan), np.append(b, np.nan))
    assert result.p_value == pytest.approx(exact, abs=0.015)
    assert result.difference == pytest.approx(difference.mean())
    assert result.low < result.difference < result.high
    assert result.queries == 10


def test_equal_runs_do_not_differ_and_a_constant_gain_does() -> None:
    a = np.random.default_rng(2).random(200)
    assert paired_test(a, a).p_value == 1.0
    assert paired_test(a + 0.01, a).p_value == pytest.approx(1 / 10_001)


def test_scores_of_other_queries_are_not_paired() -> None:
    with pytest.raises(DataError, match="same queries"):
        paired_test(np.ones(3), np.ones(4))
    with pytest.raises(DataError, match="different queries"):
        paired_test(np.array([1.0, np.nan]), np.array([np.nan, 1.0]))
    with pytest.raises(DataError, match="no query"):
        bootstrap_interval(np.array([np.nan]))


def test_honest_takes_one_epoch_and_paper_the_best_of_each_direction() -> None:
    scores = [
        EpochScore(1, 0.5, 0.9),
        EpochScore(2, 0.8, 0.7),
        EpochScore(3, 0.7, 0.8),
        EpochScore(4, float("nan"), 0.1),
    ]
    assert honest_epoch(scores) == 2  # the earlier of two equals
    assert paper_number(scores) == PaperNumber(i2t=0.8, i2t_epoch=2, t2i=0.9, t2i_epoch=1)
    with pytest.raises(DataError, match="none of 0 epochs"):
        honest_epoch([])
