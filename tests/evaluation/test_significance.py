"""Intervals and the paired test against theory and a full enumeration; the choice of epochs by hand."""

from itertools import product

import numpy as np
import pytest

from kenthash.errors import DataError
from kenthash.evaluation import bootstrap_interval, holm, paired_test, seed_test
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
        EpochScore(1, 0.5, 0.9, 0.7),
        EpochScore(2, 0.8, 0.7, 0.75),
        EpochScore(3, 0.7, 0.8, 0.75),
        EpochScore(4, float("nan"), 0.1, float("nan")),
    ]
    assert honest_epoch(scores) == 2  # the earlier of two equals
    assert paper_number(scores) == PaperNumber(i2t=0.8, i2t_epoch=2, t2i=0.9, t2i_epoch=1)
    with pytest.raises(DataError, match="none of 0 epochs"):
        honest_epoch([])


def test_over_seeds_all_signs_are_tried() -> None:
    """Against a loop over all signs; and only a lead with every one of few seeds can be significant."""
    rng = np.random.default_rng(0)
    for n in (1, 3, 6):
        a, b = rng.random(n), rng.random(n)
        difference = a - b
        extreme = [
            abs(sum(s * d for s, d in zip(signs, difference, strict=True))) >= abs(difference.sum()) - 1e-12
            for signs in product((1, -1), repeat=n)
        ]
        test = seed_test(list(a), list(b))
        assert test.p_value == pytest.approx(np.mean(extreme)) and test.difference == pytest.approx(difference.mean())
    ahead = seed_test([0.71] * 10, [0.70] * 9 + [0.705])
    assert ahead.p_value == 2 / 1024 and ahead.low > 0
    mixed = [0.71] * 8 + [0.69] * 2
    assert seed_test(mixed, [0.70] * 10).p_value > 0.05
    with pytest.raises(DataError, match="the same seeds"):
        seed_test([0.5], [0.5, 0.6])


def test_of_many_seeds_random_signs_are_tried() -> None:
    assert seed_test([0.71] * 25, [0.70] * 25).p_value == pytest.approx(1 / 10_001)
    rng = np.random.default_rng(3)
    a, b = rng.normal(0.2, 1, 30), np.zeros(30)
    assert seed_test(list(a), list(b)).p_value == pytest.approx(paired_test(a, b).p_value, abs=0.03)


def test_the_interval_over_seeds_is_students() -> None:
    test = seed_test([0.1, 0.2, 0.4], [0.0, 0.0, 0.0])
    mean, deviation = 0.7 / 3, np.std([0.1, 0.2, 0.4], ddof=1)
    assert test.high - test.difference == pytest.approx(4.302653 * deviation / np.sqrt(3), rel=1e-5)
    assert test.difference == pytest.approx(mean)


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03, 0.005]) == pytest.approx([0.06, 0.03, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0] and holm([]) == []
