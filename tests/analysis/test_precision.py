"""Precision of single labels, against a slow ranking of our own and by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from kenthash.analysis.precision import (
    class_average_precision,
    class_precision,
    mean_by_label_count,
    subordinate_labels,
    subordinate_precision,
)
from kenthash.codes import Codes, hamming, pack

Chain = tuple[Codes, Codes, NDArray[np.uint8]]


@pytest.fixture
def chain() -> Chain:
    """One query, five database codes at distances 0 to 4 in this order, and their labels."""
    signs = np.ones((5, 8))
    for item in range(5):
        signs[item, :item] = -1
    labels = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 0]], np.uint8)
    return pack(np.ones((1, 8))), pack(signs), labels


def test_a_query_that_asks_for_each_of_its_classes(chain: Chain) -> None:
    query, database, labels = chain
    query_labels = np.array([[1, 1, 0]], np.uint8)
    assert class_precision(query, database, query_labels, labels, k=2) == pytest.approx([0.5, 0.5, np.nan], nan_ok=True)
    ap = [(1 + 2 / 3 + 3 / 5) / 3, (1 / 2 + 2 / 4 + 3 / 5) / 3, np.nan]
    assert class_average_precision(query, database, query_labels, labels) == pytest.approx(ap, nan_ok=True)


def test_the_subordinate_label_is_the_rarest(chain: Chain) -> None:
    query, database, labels = chain
    rows = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]], np.uint8)
    assert subordinate_labels(rows, np.array([3, 3, 1])).tolist() == [0, 2, -1]
    precision = subordinate_precision(np.repeat(query, 3, axis=0), database, rows, labels, k=4)
    assert precision == pytest.approx([2 / 4, 1 / 4, np.nan], nan_ok=True)


def test_classes_against_a_slow_count() -> None:
    """Ties are shared: each item at the last distance within k counts by its share of the places left."""
    rng = np.random.default_rng(0)
    query, database = pack(rng.standard_normal((30, 16))), pack(rng.standard_normal((200, 16)))
    query_labels, labels = (rng.random((n, 4)) < 0.3 for n in (30, 200))
    k = 20
    slow = []
    for c in range(4):
        precisions = []
        for q in np.flatnonzero(query_labels[:, c]):
            distance = hamming(query[q : q + 1], database)[0]
            left, hits = k, 0.0
            for d in range(17):
                here = distance == d
                taken = min(left, here.sum())
                if taken:
                    hits += taken * labels[here, c].mean()
                left -= taken
            precisions.append(hits / k)
        slow.append(np.mean(precisions))
    fast = class_precision(query, database, query_labels.astype(np.uint8), labels.astype(np.uint8), k)
    assert fast == pytest.approx(slow)


def test_means_by_number_of_labels() -> None:
    labels = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]], np.uint8)
    by = mean_by_label_count(np.array([0.2, 0.4, 0.6, 1.0, np.nan]), labels, most=3)
    assert {count: queries for count, (_, queries) in by.items()} == {1: 1, 2: 1, 3: 2}
    assert [mean for mean, _ in by.values()] == pytest.approx([0.2, 0.4, 0.8])
