"""DAGtH's triplet loss whose margin follows the data (Zhu et al., ESWA 2025; AdaTriplet, Nguyen et al., MICCAI 2022).

With d = −cos, over triplets of an anchor, a similar and a dissimilar item:

    ε = clip(½ mean(d_an − d_ap), 0, 0.5) over all triplets
    mean of max(0, d_ap − d_an + ε) over those within the margin
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

K_DELTA = 2.0  # what the mean of the differences is divided by, as AdaTriplet names it
WIDEST = 0.5  # ε is at most this


def adaptive_triplet(anchors: Tensor, items: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """`anchors` [N, K] against `items` [M, K] with boolean [N, M] masks of either kind; 0 where there is no triplet.

    No N × M × M table: the dissimilar of an anchor are sorted once, and for each similar item a search finds how many
    lie within the margin, and prefix sums what they add up to.
    """
    cosine = normalize(anchors) @ normalize(items).T
    margin = _margin(cosine.detach(), positive, negative)
    ascending = cosine.masked_fill(~negative, -math.inf).sort(dim=1).values
    finite = ascending.where(ascending > -math.inf, 0)
    above = finite.flip(1).cumsum(1).flip(1)  # above[i, j] = Σ of sorted values from j on
    above = torch.cat([above, above.new_zeros(len(above), 1)], dim=1)
    first = torch.searchsorted(ascending.detach(), (cosine - margin).detach())
    count = items.shape[0] - first
    violations = above.gather(1, first) - count * (cosine - margin)
    return violations.where(positive, 0).sum() / count.where(positive, 0).sum().clamp(min=1)


def _margin(cosine: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """ε. The mean over triplets needs only the sums of each row."""
    similar, dissimilar = positive.sum(1), negative.sum(1)
    total = (dissimilar * cosine.where(positive, 0).sum(1) - similar * cosine.where(negative, 0).sum(1)).sum()
    return (total / (similar * dissimilar).sum().clamp(min=1) / K_DELTA).clamp(0, WIDEST)
