"""Proxy flip rate: how many samples change their nearest proxy from one epoch to the next.

    R_flip^(t) = 1/N Σ_i [ a_i^(t) ≠ a_i^(t−1) ],   a_i = argmax_c S(z_i, c)

The paper does not say what "nearest" means for a distribution. Here it is the class of the highest score under the
method's own S: the cosine for a point, the Kent energy for KDPH.
"""

import numpy as np
from numpy.typing import NDArray

from kenthash.evaluation import Labels, Scores

Assignment = NDArray[np.integer]  # [N] the nearest proxy of each sample


def flip_rate(before: Assignment, after: Assignment) -> float:
    """Share of the samples whose nearest proxy has changed."""
    return float(np.mean(before != after))


def flip_rate_by_class(before: Assignment, after: Assignment, labels: Labels) -> Scores:
    """The same among the samples that carry each class [C]; NaN for a class that none carries."""
    carried = labels != 0
    flipped = (carried & (before != after)[:, None]).sum(axis=0)
    samples = carried.sum(axis=0)
    return np.where(samples > 0, flipped / np.maximum(samples, 1), np.nan)
