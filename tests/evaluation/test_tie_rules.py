"""Average precision, hits and NDCG under ties, against every order listed and averaged exactly."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_retrieval import average_precision as slow_ap
from slow_retrieval import make, ndcg, orders, pairs

from kenthash.evaluation import map_of, per_query_ap
from kenthash.evaluation.inputs import Ties
from kenthash.evaluation.measures import average_precision, harmonic_span, hits_at, ndcg_at

# A few items at a few distances: (distance, number of shared labels), at most 5 at one distance so that all orders can
# be listed.
rankings = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 1, 2, 3])), min_size=1, max_size=9).filter(
    lambda items: any(g for _, g in items) and max(sum(d == x for x, _ in items) for d in range(4)) <= 5
)


def histogram(items: list[tuple[int, int]]) -> np.ndarray:
    counts = np.zeros((1, 4, 4), np.int64)
    for distance, grade in items:
        counts[0, distance, grade] += 1
    return counts


@settings(max_examples=60)
@given(rankings, st.sampled_from([None, 1, 2, 3, 5, 8, 20]))
def test_every_rule_equals_the_list_of_all_orders(items: list[tuple[int, int]], k: int | None) -> None:
    counts = histogram(items)
    relevant, total = counts[:, :, 1:].sum(axis=2), counts.sum(axis=2)
    listed = list(orders(items))
    scores = [slow_ap(ranking, k) for ranking in listed]
    wanted = {"expected": sum(scores, Fraction(0)) / len(scores), "optimistic": max(scores), "pessimistic": min(scores)}
    rule: Ties
    for rule in ("expected", "optimistic", "pessimistic"):
        assert average_precision(relevant, total, rule, k)[0] == pytest.approx(float(wanted[rule]), abs=1e-12)
    if k is not None:
        hits = [sum(grade > 0 for grade in ranking[:k]) for ranking in listed]
        assert hits_at(relevant, total, "expected", k)[0] == pytest.approx(sum(hits) / len(hits), abs=1e-12)
        assert hits_at(relevant, total, "optimistic", k)[0] == max(hits)
        assert hits_at(relevant, total, "pessimistic", k)[0] == min(hits)
        gains = [ndcg(ranking, k) for ranking in listed]
        assert ndcg_at(counts, k)[0] == pytest.approx(sum(gains) / len(gains), abs=1e-12)


def test_by_hand() -> None:
    # distance 0: one of two relevant; distance 1: one relevant
    relevant, total = np.array([[1, 1]]), np.array([[2, 1]])
    assert average_precision(relevant, total, "optimistic")[0] == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(relevant, total, "pessimistic")[0] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert average_precision(relevant, total, "expected")[0] == pytest.approx((3 / 4 + 2 / 3) / 2)
    assert average_precision(relevant, total, "expected", k=1)[0] == pytest.approx(1 / 2)  # divided by min(1, 2)
    assert np.isnan(average_precision(0 * relevant, total, "expected")[0])


def test_harmonic_span_keeps_its_digits() -> None:
    starts, counts = [0, 0, 3, 60, 62, 63, 64, 1_000, 10**9, 10**12], [0, 5, 200, 9, 1, 1, 70, 3, 2, 1]
    exact = [float(sum(Fraction(1, s + j) for j in range(1, c + 1))) for s, c in zip(starts, counts, strict=True)]
    np.testing.assert_allclose(harmonic_span(np.array(starts), np.array(counts)), exact, rtol=4e-15, atol=0)


def test_stable_order_equals_a_stable_sort() -> None:
    data = make(3, 30, 200, 8, 6, density=0.15)
    for k in (None, 7, 200, 500):
        ap = per_query_ap(*data, ties="stable", k=k)
        for q in range(30):
            ranking = [grade for _, grade in sorted(pairs(*data, q), key=lambda item: item[0])]
            if any(ranking):
                assert ap[q] == pytest.approx(float(slow_ap(ranking, k)), abs=1e-12)
            else:
                assert np.isnan(ap[q])


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([None, 1, 10, 37]))
def test_rules_are_ordered_and_only_stable_sees_the_database_order(seed: int, k: int | None) -> None:
    query, database, query_labels, labels = make(seed, 8, 40, 8, 4)
    query_labels[:, 0] = labels[0, 0] = 1
    order = np.random.default_rng(seed).permutation(40)
    score: dict[str, np.ndarray] = {}
    rule: Ties
    for rule in ("optimistic", "expected", "stable", "pessimistic"):
        score[rule] = per_query_ap(query, database, query_labels, labels, rule, k)
        moved = per_query_ap(query, database[order], query_labels, labels[order], rule, k)
        assert rule == "stable" or np.allclose(moved, score[rule], atol=1e-12)
    for middle in ("expected", "stable"):
        assert (score["optimistic"] >= score[middle] - 1e-12).all()
        assert (score[middle] >= score["pessimistic"] - 1e-12).all()


def test_without_ties_all_rules_agree_with_the_plain_definition() -> None:
    # 64 items at 64 different distances from the query, relevant at random
    rng = np.random.default_rng(5)
    bits = np.tril(np.ones((64, 64), np.uint8))
    order = rng.permutation(64)
    database = np.packbits(bits, axis=1, bitorder="little")[order]
    labels = (rng.random((64, 1)) < 0.4).astype(np.uint8)
    task = (np.zeros((1, 8), np.uint8), database, np.ones((1, 1), np.uint8), labels)
    ranked = labels[np.argsort(order), 0].astype(bool)
    precision = np.cumsum(ranked) / np.arange(1, 65)
    rule: Ties
    for rule in ("expected", "optimistic", "pessimistic", "stable"):
        assert map_of(*task, ties=rule) == pytest.approx(precision[ranked].mean(), abs=1e-14)


def test_a_query_does_not_find_itself() -> None:
    query, _, labels, _ = make(6, 25, 0, 8, 3)
    other = query[::-1].copy()  # cross-modal: an item's own code on the other side is another
    rule: Ties
    for rule in ("expected", "stable", "optimistic"):
        whole = per_query_ap(query, other, labels, labels, rule, exclude_self=True)
        for q in range(25):
            others = np.delete(np.arange(25), q)
            alone = per_query_ap(query[q : q + 1], other[others], labels[q : q + 1], labels[others], rule)
            assert whole[q] == pytest.approx(alone[0], abs=1e-12, nan_ok=True)
