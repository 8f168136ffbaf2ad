"""Ground-truth score divergence: the gap between the best and the worst scored label of one item.

    GTSD(x) = max_{l ∈ L_x} S(x, l) − min_{l ∈ L_x} S(x, l)

The paper's figures are between 0 and 1 for both methods, so its S is the cosine to the class's direction there, not
the Kent energy, whose scale is κ. Both are measured here: the cosine, and the method's own score in units of its
standard deviation over all items and classes, so that methods of any scale can be compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kenthash.analysis.subject import Subject
from kenthash.evaluation import Labels, Scores


def gtsd(scores: NDArray[np.floating], labels: Labels) -> Scores:
    """[N] from scores [N, C]; NaN for an item without labels."""
    carried = labels != 0
    best = np.where(carried, scores, -np.inf).max(axis=1)
    worst = np.where(carried, scores, np.inf).min(axis=1)
    return np.where(carried.any(axis=1), best - worst, np.nan)


def maximum_scores(scores: NDArray[np.floating], labels: Labels) -> Scores:
    """[N] the score of the best recognised label; NaN for an item without labels."""
    carried = labels != 0
    best = np.where(carried, scores, -np.inf).max(axis=1)
    return np.where(carried.any(axis=1), best, np.nan)


def standardised(scores: NDArray[np.floating]) -> Scores:
    """Scores in standard deviations over all items and classes, from their mean."""
    values = np.asarray(scores, np.float64)
    return np.asarray((values - values.mean()) / max(float(values.std()), 1e-12))


@dataclass(frozen=True)
class Divergence:
    """Items with one number of labels."""

    items: int
    gtsd: float
    maximum: float


ByCount = dict[int, Divergence]


def divergence_by_label_count(scores: NDArray[np.floating], labels: Labels, counts: range = range(3, 9)) -> ByCount:
    """Means for each number of labels in `counts` (the paper's 3 to 8) that occurs."""
    number = (labels != 0).sum(axis=1)
    gap, best = gtsd(scores, labels), maximum_scores(scores, labels)
    return {
        n: Divergence(int(rows.sum()), float(gap[rows].mean()), float(best[rows].mean()))
        for n in counts
        if (rows := number == n).any()
    }


def divergences(subjects: Sequence[Subject]) -> tuple[ByCount, ByCount]:
    """By number of labels from the cosine to the class directions, and from the method's own standardised score; over
    the items that were not trained on, images and texts, all seeds together."""
    cosine, own, labels = zip(*(subject.scores(subject.unseen) for subject in subjects), strict=True)
    stacked = np.concatenate(labels)
    return (
        divergence_by_label_count(np.concatenate(cosine), stacked),
        divergence_by_label_count(np.concatenate([standardised(scores) for scores in own]), stacked),
    )
