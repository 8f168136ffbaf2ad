"""DDBH's loss with a boundary point for every row, which parts easy from hard pairs (Qin et al., TCSVT 2024).

For inner products u_ij = ⟨a_i, b_j⟩ and U = K/4, row by row, with means clamped to [0, U]:

    m⁺ = mean of similar,     q = mean of the top tenth of dissimilar,   β⁺ = m⁺ − (U−m⁺)/U · |m⁺ − q|
    m⁻ = mean of dissimilar,  r = mean of the lowest tenth of similar,   β⁻ = m⁻ − m⁻/U · |m⁻ − r|

    similar:     softplus(−ln 99 (u − β⁺)/w),  w = K/6 where u > β⁺ (easy), K/12 where not
    dissimilar:  softplus(+ln 99 (u − β⁻)/w),  w = K/6 where u < β⁻ (easy), K/12 where not

A row's loss is the mean over its similar plus the mean over its dissimilar pairs. The boundaries take no gradient.
Rows that have only one kind of pair are left out.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus


def boundary(a: Tensor, b: Tensor, similar: Tensor) -> Tensor:
    """`a` [N, K] against `b` [M, K] with boolean `similar` [N, M]; 0 where no row has both kinds of pairs."""
    bits = a.shape[1]
    products = a @ b.T
    upper, lower = _boundaries(products.detach(), similar, bits / 4)
    offset = products - torch.where(similar, upper[:, None], lower[:, None])
    outward = torch.where(similar, offset, -offset)  # above 0: an easy pair of either kind
    width = bits / 12 * (1 + (outward > 0).to(products.dtype))
    losses = softplus(-math.log(99) * outward / width)
    rows = _masked_mean(losses, similar) + _masked_mean(losses, ~similar)
    both = similar.any(1) & (~similar).any(1)
    return (rows * both).sum() / both.sum().clamp(min=1)


def _boundaries(products: Tensor, similar: Tensor, top: float) -> tuple[Tensor, Tensor]:
    """β⁺ and β⁻ of every row."""
    mean_similar = _masked_mean(products, similar).clamp(0, top)
    mean_dissimilar = _masked_mean(products, ~similar).clamp(0, top)
    hardest_dissimilar = -_lowest_tenth(-products, ~similar)
    hardest_similar = _lowest_tenth(products, similar)
    upper = mean_similar - (top - mean_similar) / top * (mean_similar - hardest_dissimilar).abs()
    lower = mean_dissimilar - mean_dissimilar / top * (mean_dissimilar - hardest_similar).abs()
    return upper, lower


def _lowest_tenth(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of the lowest tenth (rounded up) of the marked values of every row; 0 for a row without any."""
    ascending = values.masked_fill(~mask, math.inf).sort(dim=1).values
    count = mask.sum(1, keepdim=True)
    count = count - 9 * count // 10
    lowest = torch.arange(values.shape[1], device=values.device) < count
    return _masked_mean(ascending, lowest)


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return values.where(mask, 0).sum(1) / mask.sum(1).clamp(min=1)
