"""The paper's measures on cases worked out by hand."""

import numpy as np
import pytest

from kenthash.analysis.cooccurrence import companions, high_and_low
from kenthash.analysis.gtsd import divergence_by_label_count, gtsd, maximum_scores, standardised
from kenthash.analysis.oscillation import chaos, flip_rate, flip_rate_by_class
from kenthash.analysis.subject import mean_over_seeds
from kenthash.analysis.topology import group_topology, nearest_proxy_cosine
from kenthash.data.check import average_cooccurring_labels
from kenthash.errors import UsageError

NAN = float("nan")


def test_acl_counts_the_other_labels() -> None:
    labels = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 0]], np.uint8)
    # class 0: 1, 1 and 2 others; class 1: 1 and 2; class 2: 1 and 2; nobody carries class 3
    assert average_cooccurring_labels(labels) == pytest.approx([4 / 3, 1.5, 1.5, NAN], nan_ok=True)
    assert companions(labels, anchor=0, number=3).tolist() == [1, 2]  # two each; class 3 never comes with it


def test_high_and_low_are_the_extremes_of_the_frequent() -> None:
    labels = np.zeros((60, 6), np.uint8)
    labels[:20, [0, 1, 2]] = 1  # 2 others each
    labels[20:40, 3] = 1  # alone
    labels[40:60, 4] = 1
    labels[40:50, 3] = 1  # 3: 10 of 30 with one other; 4: 10 of 20
    labels[0, 5] = 1  # the most complex, but one item only
    high, low = high_and_low(labels, number=2)
    assert set(high) < {0, 1, 2} and low.tolist() == [3, 4]
    assert high_and_low(labels, number=9)[1].tolist() == [3, 4]  # five frequent classes: two a side
    assert 5 in high_and_low(labels, number=2, least=1)[0]


def test_flip_rate_overall_and_by_class() -> None:
    before, after = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0])
    labels = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]], np.uint8)
    assert flip_rate(before, after) == 0.5
    assert flip_rate_by_class(before, after, labels) == pytest.approx([2 / 3, 1 / 2, NAN], nan_ok=True)


def test_chaos_of_a_straight_even_path_is_nothing() -> None:
    parts = chaos(np.arange(5.0)[:, None] * [[3.0, 4.0]])
    assert (parts.efficiency, parts.consistency, parts.entropy, parts.autocorrelation) == pytest.approx((1, 1, 0, 1))
    assert parts.index == pytest.approx(0)
    assert chaos(np.ones((4, 3))).index == 0  # at rest


def test_chaos_of_going_to_and_fro() -> None:
    parts = chaos(np.array([[0.0], [1.0], [0.0], [1.0], [0.0]]))
    assert (parts.efficiency, parts.consistency, parts.entropy, parts.autocorrelation) == pytest.approx((0, -1, 0, -1))
    assert parts.index == pytest.approx(3 / 4)  # even steps: all but the entropy


def test_chaos_by_hand() -> None:
    """Steps (1,0), (0,2), (0,-1): no turn kept, one reversed; lengths 1, 2, 1 in three bins over [0, 2]."""
    parts = chaos(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [1.0, 1.0]]))
    assert parts.efficiency == pytest.approx(np.sqrt(2) / 4)
    assert parts.consistency == pytest.approx((0 - 1) / 2)
    assert parts.autocorrelation == pytest.approx(-2 / np.sqrt((1 + 4) * (4 + 1)))
    two_thirds = 2 / 3
    entropy = -(two_thirds * np.log(two_thirds) + 1 / 3 * np.log(1 / 3)) / np.log(3)
    assert parts.entropy == pytest.approx(entropy)
    order = [parts.efficiency, (parts.consistency + 1) / 2, (parts.autocorrelation + 1) / 2]
    assert parts.index == pytest.approx((entropy + 3 - sum(order)) / 4)
    with pytest.raises(UsageError, match="path of 2 positions"):
        chaos(np.zeros((2, 3)))


def test_gtsd_is_the_gap_between_true_labels() -> None:
    scores = np.array([[0.9, 0.1, 0.5, 0.7], [0.2, 0.8, 0.3, 0.0], [0.4, 0.4, 0.4, 0.4]])
    labels = np.array([[1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 0, 0]], np.uint8)
    assert gtsd(scores, labels) == pytest.approx([0.4, 0.6, NAN], nan_ok=True)
    assert maximum_scores(scores, labels) == pytest.approx([0.9, 0.8, NAN], nan_ok=True)
    by = divergence_by_label_count(scores, labels)
    assert list(by) == [3] and by[3].items == 2
    assert (by[3].gtsd, by[3].maximum) == pytest.approx((0.5, 0.85))
    assert standardised(scores * 7 + 3) == pytest.approx(standardised(scores))  # of any scale


def test_topology_within_and_between_groups() -> None:
    means = np.array([[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [3.0, 4.0]])  # lengths play no part
    groups = group_topology(means, {"a": [0, 3], "b": [1, 2]})
    assert groups["a"].intra == pytest.approx(0.6)
    assert groups["b"].intra == pytest.approx(0.0)
    across = (0 - 1 + 0.8 - 0.6) / 4  # 0·1, 0·2, 3·1, 3·2
    assert groups["a"].inter == pytest.approx(across) == groups["b"].inter
    assert groups["a"].separation == pytest.approx(0.6 - across)
    alone = group_topology(means, {"a": [0], "b": [1, 2]})
    assert np.isnan(alone["a"].intra) and alone["a"].inter == pytest.approx(-0.5)
    assert nearest_proxy_cosine(means) == pytest.approx([0.6, 0.8, 0.0, 0.8])


def test_the_mean_over_seeds_leaves_nan_out() -> None:
    parts = [np.array([1.0, NAN, NAN]), np.array([3.0, 5.0, NAN])]
    assert mean_over_seeds(parts) == pytest.approx([2.0, 5.0, NAN], nan_ok=True)
    assert float(mean_over_seeds([1.0, 2.0])) == 1.5
