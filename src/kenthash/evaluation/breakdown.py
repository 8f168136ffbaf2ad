"""mAP by class and by number of labels: who is served well, and who is not."""

from dataclasses import dataclass

import numpy as np

from kenthash.evaluation.inputs import Labels
from kenthash.evaluation.ranking import Scores


@dataclass(frozen=True)
class Group:
    """Queries that have something in common. `map` is NaN where there are none."""

    map: float
    queries: int


def by_class(ap: Scores, labels: Labels) -> list[Group]:
    """For each class, the queries that carry it. A class that no scored query carries has 0 queries and no mAP."""
    return [_group(ap, labels[:, c] != 0) for c in range(labels.shape[1])]


def by_label_count(ap: Scores, labels: Labels) -> dict[int, Group]:
    """For each number of labels that occurs among scored queries, the queries with so many."""
    number = (labels != 0).sum(axis=1)
    return {int(n): _group(ap, number == n) for n in np.unique(number[~np.isnan(ap)])}


def _group(ap: Scores, members: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Group:
    scores = ap[members & ~np.isnan(ap)]
    return Group(float(scores.mean()) if len(scores) else float("nan"), len(scores))
