"""DCHMT's contrastive term in Euclidean distance (Tu et al., MM 2022).

    mean_ij [ S_ij d_ij² + (1 − S_ij) max(0, M − d_ij)² ]

The mean is over all pairs, so that the rarer kind weighs less, as in the authors' code.
"""

import torch
from torch import Tensor


def pair_distance(a: Tensor, b: Tensor, similar: Tensor, reach: float) -> Tensor:
    """`a` [N, K] against `b` [M, K] with boolean `similar` [N, M]; dissimilar pairs beyond `reach` = M rest."""
    squared = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * (a @ b.T)
    # The root has no gradient at 0: two dissimilar items in the same place send none, and no NaN.
    distance = squared.clamp(min=1e-12).sqrt()
    return torch.where(similar, squared, (reach - distance).clamp(min=0).square()).mean()
