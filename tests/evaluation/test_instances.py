"""Own items: against every order of the ties written out, and cases worked by hand."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kenthash.codes import hamming, pack, unpack
from kenthash.errors import DataError, UsageError
from kenthash.evaluation import Ties, instance_ndcg, instance_scores
from kenthash.evaluation.short_queries import precision_at


def orders(distances: np.ndarray) -> list[list[int]]:
    """All rankings of a few rows by distance, ties in every order."""
    return [
        list(order) for order in permutations(range(len(distances))) if (np.diff(distances[list(order)]) >= 0).all()
    ]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_expected_measures_are_means_over_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, database = rng.integers(0, 4, (3, 1), np.uint8), rng.integers(0, 4, (6, 1), np.uint8)
    query_items, database_items = rng.integers(0, 3, 3), rng.integers(0, 4, 6)
    labels = rng.integers(0, 2, (4, 2))
    query_items[0] = database_items[0]
    ranks, gains = [], []
    for item, distances in zip(query_items, hamming(queries, database), strict=True):
        grade = np.where(database_items == item, 2, (labels[database_items] @ labels[item] > 0) * 1)
        every = orders(distances)
        discount = 1 / np.log2(np.arange(2, 6))
        best = ((2.0 ** np.sort(grade)[::-1] - 1)[:4] * discount).sum()
        if best > 0:
            gains.append(np.mean([((2.0 ** grade[order] - 1)[:4] * discount).sum() / best for order in every]))
        if (database_items == item).any():
            ranks.append([1 + list(database_items[order] == item).index(True) for order in every])
    scores = instance_scores(queries, database, query_items, database_items, ks=[1, 2, 4])
    assert scores.queries == len(ranks) and scores.excluded == 3 - len(ranks)
    for k in (1, 2, 4):
        assert scores.recall[k] == pytest.approx(np.mean([np.mean(np.array(order) <= k) for order in ranks]))
    assert scores.mrr == pytest.approx(np.mean([np.mean(1 / np.array(order)) for order in ranks]))
    reached = [np.mean([np.mean(np.array(order) <= k) for order in ranks]) for k in range(1, 7)]
    assert scores.median_rank == 1 + int(np.argmax(np.array(reached) >= 0.5 - 1e-9))
    ndcg = instance_ndcg(
        queries, database, query_items, database_items, labels[query_items], labels[database_items], k=4
    )
    assert ndcg == pytest.approx(np.mean(gains))


@pytest.mark.parametrize(("ties", "rank"), [("optimistic", 2), ("stable", 3), ("pessimistic", 4)])
def test_other_tie_rules(ties: Ties, rank: int) -> None:
    query, database = (
        np.array([[0]], np.uint8),
        np.array([[1], [0], [1], [1], [3]], np.uint8),
    )  # distances 1, 0, 1, 1, 2
    scores = instance_scores(query, database, np.array([5]), np.array([1, 2, 5, 4, 5]), ties=ties)
    assert scores.median_rank == rank and scores.mrr == 1 / rank


def test_real_valued_queries_rank_by_weighted_distance_and_equal_codes_tie() -> None:
    rng = np.random.default_rng(3)
    outputs, codes = rng.standard_normal((5, 16)), rng.integers(0, 4, (400, 2), np.uint8)
    items = rng.integers(0, 400, 5)
    got = instance_scores(outputs, codes, items, np.arange(400), ties="optimistic")
    differ = unpack(pack(outputs))[:, None, :] != unpack(codes)[None, :, :]
    weighted = (np.abs(outputs)[:, None, :] * differ).sum(axis=2)
    ranks = [1 + int((row < row[item] - 1e-9).sum()) for row, item in zip(weighted, items, strict=True)]
    assert got.mrr == pytest.approx(np.mean(1 / np.array(ranks)))
    floats = instance_scores(outputs, outputs[::-1].copy(), np.arange(5), np.arange(5)[::-1].copy())
    assert floats.recall[1] == 1 and floats.median_rank == 1


def test_wrong_input_is_named() -> None:
    codes, items = np.zeros((2, 1), np.uint8), np.arange(2)
    with pytest.raises(DataError, match="none of the 2 queries"):
        instance_scores(codes, codes, items, items + 5)
    with pytest.raises(UsageError, match="database items"):
        instance_scores(codes, codes, items, items[:1])
    with pytest.raises(UsageError, match="real values"):
        instance_scores(codes, np.zeros((2, 8)), items, items)
    with pytest.raises(DataError, match="another length"):
        instance_scores(np.zeros((2, 16)), codes, items, items)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_precision_of_short_queries_is_the_mean_over_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    database = rng.integers(0, 4, (6, 1), np.uint8)
    outputs = rng.choice([-1.0, -0.5, 0.5, 1.0], (3, 8)).astype(np.float32)
    relevant = rng.random((3, 6)) < 0.5
    signs = unpack(database).astype(np.float64)
    for queries, distances in ((pack(outputs), hamming(pack(outputs), database)), (outputs, -(outputs @ signs.T))):
        for k in (1, 3, 6):
            expected = [
                np.mean([relevant[row][order[:k]].mean() for order in orders(np.asarray(distances[row]))])
                for row in range(3)
            ]
            assert precision_at(queries, database, relevant, k) == pytest.approx(expected)
