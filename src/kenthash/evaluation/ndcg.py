"""NDCG@k with graded relevance: the grade of an item is the number of labels it shares with the query.

DCG@k = Σ_{i≤k} (2^grade_i − 1)/log₂(1 + i), divided by that of the best possible ranking (Järvelin & Kekäläinen 2002;
with shared labels as grades: Zhao et al., CVPR 2015). Ties are resolved by expectation: every item of a distance has
the same chance of each of its positions, so it is worth the mean gain of that distance.
"""

import numpy as np

from kenthash.evaluation.kernels import Counts
from kenthash.evaluation.ranking import Scores, nearer


def ndcg_at(counts: Counts, k: int) -> Scores:
    """Expected NDCG@k of each query from counts [q, distances, grades]; NaN without a relevant item."""
    top = counts.shape[2] - 1
    # 2^grade − 1, scaled by 2^−top so that no number of labels overflows; the ratio does not change.
    gains = np.exp2(np.arange(top + 1) - top) - np.exp2(-top)
    total = counts.sum(axis=2)
    discounts = _discount_sums(min(k, int(total.sum(axis=1).max(initial=0))))

    first = np.minimum(nearer(total), k)
    last = np.minimum(nearer(total) + total, k)
    mean_gain = (counts @ gains) / np.maximum(total, 1)
    dcg = (mean_gain * (discounts[last] - discounts[first])).sum(axis=1)

    by_grade = counts.sum(axis=1)[:, ::-1]  # the best ranking: highest grades first
    first, last = np.minimum(nearer(by_grade), k), np.minimum(nearer(by_grade) + by_grade, k)
    ideal = ((discounts[last] - discounts[first]) * gains[::-1]).sum(axis=1)
    return np.where(ideal > 0, dcg / np.where(ideal > 0, ideal, 1.0), np.nan)


def _discount_sums(k: int) -> Scores:
    """Σ_{i≤j} 1/log₂(1 + i) for j = 0 to k."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, k + 2)))])
