"""RDPH's rankings as distributions (Song et al., TMM 2024): how likely an item is to be ranked first for a query.

A row of similarities becomes a distribution over the other items by a softmax, and two rankings are compared by

    D(p, q) = Σ_j p_j log(2p_j / (p_j+q_j)) + q_j log(2q_j / (p_j+q_j))      (twice the Jensen-Shannon divergence)
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

BASE = 3.2  # α of the paper: what one more shared label multiplies the similarity by


def label_similarity(labels: Tensor) -> Tensor:
    """[N, N] graded similarity of a query i to items j: α^|y_i∩y_j| / max(ln(|y_i| − |y_i∩y_j| + 1), 1)."""
    shared = labels @ labels.T
    missing = labels.sum(1, keepdim=True) - shared
    return BASE**shared / (missing + 1).log().clamp(min=1)


def ranking_divergence(similarity: Tensor, other: Tensor) -> Tensor:
    """The mean D between the rankings of two [N, N] tables of similarities. An item is not ranked for itself."""
    p, q = (log_softmax(_others(table), dim=1) for table in (similarity, other))
    middle = torch.logaddexp(p, q) - math.log(2)
    return (p.exp() * (p - middle) + q.exp() * (q - middle)).sum(1).mean()


def _others(table: Tensor) -> Tensor:
    """[N, N − 1]: every row without its diagonal entry."""
    n = len(table)
    return table.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
