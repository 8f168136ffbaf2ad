"""Precision of single labels: of a class, and of the label that is hardest to find in an item.

Elsewhere an item is relevant if it shares any label with the query. Here a query has one class, and only items that
carry that class are relevant: the evaluator of codes is called with queries of one label each.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kenthash.analysis.subject import Subject
from kenthash.codes import Codes
from kenthash.evaluation import Labels, Scores, per_query_ap
from kenthash.evaluation.histograms import count_by_distance
from kenthash.evaluation.inputs import Retrieval
from kenthash.evaluation.measures import hits_at

NEAREST = 50  # k of the paper's precision@k; for the subordinate label the paper gives none
MOST = 8  # queries with this many labels or more are one group: larger numbers have few queries each

ByCount = dict[int, tuple[float, int]]  # number of labels → (mean, queries)


def class_precision(
    query_codes: Codes, database_codes: Codes, query_labels: Labels, database_labels: Labels, k: int = NEAREST
) -> Scores:
    """Precision@k of every class [C]: mean over the queries that carry it of the share of their first k items that
    carry it too, expected ties. NaN for a class without queries."""
    queries, classes = np.nonzero(query_labels)
    one_hot = _one_hot(classes, query_labels.shape[1])
    return _mean_by(classes, _precision(query_codes[queries], database_codes, one_hot, database_labels, k), one_hot)


def class_average_precision(
    query_codes: Codes, database_codes: Codes, query_labels: Labels, database_labels: Labels
) -> Scores:
    """Average precision of every class [C], as above over the whole ranking. NaN for a class that only one side has."""
    queries, classes = np.nonzero(query_labels)
    one_hot = _one_hot(classes, query_labels.shape[1])
    ap = per_query_ap(query_codes[queries], database_codes, one_hot, database_labels)
    scored = ~np.isnan(ap)
    return _mean_by(classes[scored], ap[scored], one_hot)


def subordinate_labels(labels: Labels, frequency: NDArray[np.integer]) -> NDArray[np.int64]:
    """The rarest class of every item by `frequency` [C], the paper's subordinate label; −1 for an item without."""
    counts = np.where(labels != 0, frequency, np.iinfo(np.int64).max)
    return np.where((labels != 0).any(axis=1), counts.argmin(axis=1), -1)


def subordinate_precision(
    query_codes: Codes, database_codes: Codes, query_labels: Labels, database_labels: Labels, k: int = NEAREST
) -> Scores:
    """Precision@k of each query's subordinate label [Q], NaN for a query without labels.

    Frequencies are those of the database.
    """
    wanted = subordinate_labels(query_labels, (database_labels != 0).sum(axis=0))
    scores = np.full(len(wanted), np.nan)
    queries = np.flatnonzero(wanted >= 0)
    one_hot = _one_hot(wanted[queries], query_labels.shape[1])
    scores[queries] = _precision(query_codes[queries], database_codes, one_hot, database_labels, k)
    return scores


def mean_by_label_count(scores: Scores, labels: Labels, most: int) -> ByCount:
    """(mean, number of items) by number of labels, from 1; `most` stands for that many or more. NaN is left out."""
    number = np.minimum((labels != 0).sum(axis=1), most)
    groups = {n: scores[(number == n) & ~np.isnan(scores)] for n in range(1, most + 1)}
    return {n: (float(group.mean()), len(group)) for n, group in groups.items() if len(group)}


def precision_at_nearest(subject: Subject) -> Scores:
    """Precision@50 of every class [C] on the query set, mean of both directions."""
    return np.asarray(np.mean([class_precision(*direction) for direction in subject.directions()], axis=0))


def precision_by_label_count(subjects: Sequence[Subject]) -> tuple[ByCount, ByCount]:
    """(mAP, subordinate precision@50) by number of labels, over the queries of all runs and both directions."""
    ap, subordinate, labels = [], [], []
    for subject in subjects:
        for direction in subject.directions():
            ap.append(per_query_ap(*direction))
            subordinate.append(subordinate_precision(*direction))
            labels.append(direction[2])
    stacked = np.concatenate(labels)
    return (
        mean_by_label_count(np.concatenate(ap), stacked, MOST),
        mean_by_label_count(np.concatenate(subordinate), stacked, MOST),
    )


def _precision(query_codes: Codes, database_codes: Codes, one_hot: Labels, database_labels: Labels, k: int) -> Scores:
    task = Retrieval(query_codes, database_codes, one_hot, database_labels)
    return np.concatenate([hits_at(t.relevant, t.total, "expected", k) / k for t in count_by_distance(task)])


def _one_hot(classes: NDArray[np.int64], number: int) -> NDArray[np.uint8]:
    rows = np.zeros((len(classes), number), np.uint8)
    rows[np.arange(len(classes)), classes] = 1
    return rows


def _mean_by(classes: NDArray[np.int64], scores: Scores, one_hot: Labels) -> Scores:
    number = one_hot.shape[1]
    count = np.bincount(classes, minlength=number)
    return np.where(count > 0, np.bincount(classes, scores, number) / np.maximum(count, 1), np.nan)
