"""Independent, slow forms of what `kenthash.evaluation` computes: plain loops, exact fractions, every order listed."""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import groupby, permutations, product

import numpy as np

from kenthash.codes import unpack

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # query codes, database codes, and the labels of each
Ranking = list[int]  # grades (numbers of shared labels) in the order of rank


def make(seed: int, queries: int, items: int, bits: int, classes: int, density: float = 0.3) -> Data:
    """Random packed codes and labels: query codes, database codes, query labels, database labels."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (queries + items, bits // 8), dtype=np.uint8)
    labels = (rng.random((queries + items, classes)) < density).astype(np.uint8)
    return codes[:queries], codes[queries:], labels[:queries], labels[queries:]


def pairs(
    query: np.ndarray,
    database: np.ndarray,
    query_labels: np.ndarray,
    labels: np.ndarray,
    q: int,
    skip: int | None = None,
) -> list[tuple[int, int]]:
    """(distance, shared labels) of every item to query q, in the order of the database."""
    a, b = unpack(query[q : q + 1])[0], unpack(database)
    ranked = []
    for i in range(len(database)):
        if i != skip:
            distance = sum(int(x != y) for x, y in zip(a, b[i], strict=True))
            shared = sum(int(x and y) for x, y in zip(query_labels[q], labels[i], strict=True))
            ranked.append((distance, shared))
    return ranked


def orders(items: Sequence[tuple[int, int]]) -> Iterator[Ranking]:
    """Every ranking that the distances allow, each as often as it occurs among the permutations."""
    groups = [[grade for _, grade in group] for _, group in groupby(sorted(items), key=lambda item: item[0])]
    for choice in product(*(permutations(group) for group in groups)):
        yield [grade for group in choice for grade in group]


def average_precision(ranking: Ranking, k: int | None = None) -> Fraction:
    relevant = sum(grade > 0 for grade in ranking)
    hits, total = 0, Fraction(0)
    for place, grade in enumerate(ranking[:k], start=1):
        if grade > 0:
            hits += 1
            total += Fraction(hits, place)
    return total / min(relevant, k or relevant)


def ndcg(ranking: Ranking, k: int) -> float:
    def dcg(grades: Ranking) -> float:
        return sum((2.0**grade - 1) / math.log2(1 + place) for place, grade in enumerate(grades[:k], start=1))

    return dcg(ranking) / dcg(sorted(ranking, reverse=True))
