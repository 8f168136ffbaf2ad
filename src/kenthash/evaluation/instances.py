"""Instance retrieval: how soon a query finds its own item, as a photo its caption and a caption its photo.

Shared labels ask for anything of the same kind; here exactly one item, or one of several captions of a photo, is right.
The rank of a query is the position of the first of its own items. Ties are exact, as in `measures`: of the n items at
the distance of the nearest own one, s are its own and N items are nearer. Where every order of the n is equally likely,

    P(rank > N + j) = C(n − j, s) / C(n, s) = Π_{i<j} (n − s − i) / (n − i)

and the distributions of all queries, averaged, give every measure: recall@k is the probability of a rank up to k, the
median rank the smallest k whose recall reaches one half, MRR the mean of 1 / rank.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, unpack
from kenthash.errors import DataError, UsageError
from kenthash.evaluation.inputs import Labels, Ties, check_codes, check_cutoffs, check_labels, check_ties
from kenthash.evaluation.measures import Scores, ndcg_at

INSTANCE_KS = (1, 5, 10)
PAIRS = 1 << 23  # distances held at a time

Items = NDArray[np.int64]
CodesOrReals = NDArray[Any]  # packed codes [N, K / 8] of uint8, or real values [N, K]


@dataclass(frozen=True)
class InstanceScores:
    """Means over the queries that have an item of their own in the database; `excluded` counts the others."""

    ties: Ties
    queries: int
    excluded: int
    database: int
    recall: dict[int, float]  # by k
    median_rank: int
    mrr: float


def instance_scores(
    queries: CodesOrReals,
    database: CodesOrReals,
    query_items: Items,
    database_items: Items,
    ks: Sequence[int] = INSTANCE_KS,
    ties: Ties = "expected",
) -> InstanceScores:
    """Score how soon each query finds a row of the database that is of the same item.

    Codes are compared by Hamming distance, the real-valued outputs h of a query with codes by the weighted one
    Σ |h_i| [signs differ], and real values with real values by cosine. Rows with equal codes always tie.

    The query ties with a foreign row at distance 0, so that its own is first or second:

        >>> query, database = np.uint8([[255]]), np.uint8([[255], [255], [0]])
        >>> instance_scores(query, database, np.array([7]), np.array([7, 8, 9]), ks=[1, 2]).recall
        {1: 0.5, 2: 1.0}
    """
    check_ties(ties)
    check_cutoffs(ks)
    _check_items("query", queries, query_items)
    _check_items("database", database, database_items)
    order = np.argsort(database_items, kind="stable")
    in_order = database_items[order]
    first, last = (np.searchsorted(in_order, query_items, side) for side in ("left", "right"))
    ranks, scored = np.zeros(len(database)), 0
    row = 0
    for chunk in distances_to(queries, database):
        for distances in chunk:
            if first[row] < last[row]:
                _add_ranks(distances, order[first[row] : last[row]], ties, ranks)
                scored += 1
            row += 1
    if not scored:
        raise DataError(f"none of the {len(queries)} queries has an item of its own in the database")
    ranks /= scored
    recall = np.cumsum(ranks)
    return InstanceScores(
        ties=ties,
        queries=scored,
        excluded=len(queries) - scored,
        database=len(database),
        recall={int(k): float(recall[min(k, len(recall)) - 1]) for k in ks},
        median_rank=1 + int(np.argmax(recall >= 0.5 - 1e-12)),
        mrr=float((ranks / np.arange(1, len(ranks) + 1)).sum()),
    )


def instance_ndcg(
    queries: Codes,
    database: Codes,
    query_items: Items,
    database_items: Items,
    query_labels: Labels,
    database_labels: Labels,
    k: int = 10,
) -> float:
    """Mean NDCG@k with three grades: 2 for a row of the query's own item, 1 for one that shares a label, else 0.

    Ties count by expectation. Queries without an own or related row are left out.

    The own row is second, behind one that shares the only label, so this is (1 + 3/log₂3) / (3 + 1/log₂3):

        >>> query, database, items = np.uint8([[0]]), np.uint8([[0], [1]]), np.array([8, 7])
        >>> labels = np.ones((2, 1), np.uint8)
        >>> round(instance_ndcg(query, database, items[1:], items, labels[:1], labels), 4)
        0.7967
    """
    check_cutoffs([k])
    for side, codes, items in (("query", queries, query_items), ("database", database, database_items)):
        check_codes(side, codes)
        _check_items(side, codes, items)
    check_labels(query_labels, database_labels, len(queries), len(database))
    bins = 8 * database.shape[1] + 1
    related = database_labels.astype(np.float32).T
    parts: list[Scores] = []
    row = 0
    for distances in distances_to(queries, database):
        part = slice(row, row + len(distances))
        grades = (query_labels[part].astype(np.float32) @ related > 0).astype(np.int64)
        grades[query_items[part, None] == database_items[None, :]] = 2
        keys = (np.arange(len(distances))[:, None] * bins + distances.astype(np.int64)) * 3 + grades
        counts = np.bincount(keys.ravel(), minlength=len(distances) * bins * 3).reshape(-1, bins, 3)
        parts.append(ndcg_at(counts, k))
        row += len(distances)
    return float(np.nanmean(np.concatenate(parts)))


def _check_items(side: str, rows: CodesOrReals, items: Items) -> None:
    if items.ndim != 1 or items.dtype.kind not in "iu" or len(items) != len(rows):
        raise UsageError(
            f"{side} items must be one whole number per row [{len(rows)}], not {items.dtype} {items.shape}"
        )


def distances_to(queries: CodesOrReals, database: CodesOrReals) -> Iterator[NDArray[Any]]:
    """Distances of chunks of queries to all rows of the database, smaller for nearer ones."""
    signed = database.dtype == np.uint8
    if queries.dtype == np.uint8 and not signed:
        raise UsageError("codes cannot be compared with real values: sign and pack the database, or give real queries")
    if signed:
        check_codes("database", database)
        # One column per different code, so that equal codes have equal distances whatever the order of the sums.
        database, columns = np.unique(database, axis=0, return_inverse=True)
    else:
        columns = np.arange(len(database))
    if queries.dtype == np.uint8:
        check_codes("query", queries)
    width = 8 * database.shape[1] if signed else database.shape[1]
    if (8 * queries.shape[1] if queries.dtype == np.uint8 else queries.shape[1]) != width:
        raise DataError(f"queries have another length than the database: {queries.shape}, {database.shape}")
    vectors = unpack(database).astype(np.float64) if signed else _unit(database)
    step = max(1, PAIRS // len(columns))
    for start in range(0, len(queries), step):
        part = queries[start : start + step]
        if part.dtype == np.uint8:
            products = unpack(part).astype(np.float64) @ vectors.T  # K − 2 × distance, exact
            yield ((width - products) / 2).astype(np.int32)[:, columns]
        else:
            scaled = part.astype(np.float64) if signed else _unit(part)
            yield -(scaled @ vectors.T)[:, columns]


def _unit(vectors: CodesOrReals) -> NDArray[np.float64]:
    length = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-300))


def _add_ranks(distances: NDArray[Any], own: Items, ties: Ties, ranks: Scores) -> None:
    """Add the distribution of the rank of the first own row: ranks[i] is the probability of position i + 1."""
    nearest = distances[own].min()
    nearer = int((distances < nearest).sum())
    tied = np.flatnonzero(distances == nearest)
    own = own[distances[own] == nearest]
    n, s = len(tied), len(own)
    if ties == "expected":
        i = np.arange(n - s + 1)
        later = np.concatenate([[1.0], np.cumprod((n - s - i) / (n - i))])
        ranks[nearer : nearer + len(i)] -= np.diff(later)
    else:
        before = {"optimistic": 0, "pessimistic": n - s, "stable": int((tied < own.min()).sum())}[ties]
        ranks[nearer + before] += 1
