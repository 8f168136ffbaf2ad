"""DNcH's neighbour-aware contrast: point to point and point to class in one term (Zhu et al., ESWA 2025).

With s the cosine, τ = 0.3, P and N the similar and dissimilar items of a sample, P_c and N_c its classes and the rest:

    −log [ p / (p + n) ],   p = Σ_P w⁺ e^{s/τ} + λ⁺ Σ_{P_c} w⁺ e^{s/τ},   n = Σ_N w⁻ e^{s/τ} + λ⁻ Σ_{N_c} w⁻ e^{s/τ}

where w⁺ = e^{−(1+s)/4} and w⁻ = e^{−(1−s)} stress hard pairs and take no gradient, and λ± = |P|/|P_c|, |N|/|N_c| put
the few classes on a level with the many items. A pair is easy, and left out, if it is similar and lies `MINING` above
all dissimilar ones, or dissimilar and that far below all similar ones.

The public code means to leave easy pairs out but only changes their weights; here they are left out.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

TEMPERATURE = 0.3
MINING = 0.5


def neighbour_contrast(a: Tensor, b: Tensor, classes: Tensor, labels: Tensor, similar: Tensor) -> Tensor:
    """Samples `a` [N, K] against `b` [N, K] and class centres [C, K]; samples without a label are left out."""
    a, b, classes = normalize(a), normalize(b), normalize(classes)
    to_items, to_classes = a @ b.T, a @ classes.T
    member = labels > 0
    hard = _hard(to_items.detach(), similar)
    positive = _mass(to_items, to_classes, similar, hard, member, stress=-0.25)
    negative = _mass(to_items, to_classes, ~similar, hard, ~member, stress=1.0)
    labelled = member.any(1)
    losses = (negative / positive.where(labelled, 1)).log1p()
    return losses.where(labelled, 0).sum() / labelled.sum().clamp(min=1)


def _mass(to_items: Tensor, to_classes: Tensor, pairs: Tensor, hard: Tensor, classes: Tensor, stress: float) -> Tensor:
    """p or n of every sample: the items of one kind that are kept, and the classes on a level with all of them."""
    balance = pairs.sum(1).to(to_items.dtype) / classes.sum(1).clamp(min=1)
    return _weighted(to_items, pairs & hard, stress) + balance * _weighted(to_classes, classes, stress)


def _weighted(cosine: Tensor, mask: Tensor, stress: float) -> Tensor:
    """Σ w e^{s/τ} with log w = −|stress| + stress · s."""
    log_weight = stress * cosine.detach() - abs(stress)
    return (log_weight + cosine / TEMPERATURE).exp().where(mask, 0).sum(1)


def _hard(cosine: Tensor, similar: Tensor) -> Tensor:
    """Which pairs are not easy."""
    least_similar = cosine.masked_fill(~similar, math.inf).amin(1, keepdim=True)
    most_dissimilar = cosine.masked_fill(similar, -math.inf).amax(1, keepdim=True)
    return torch.where(similar, cosine - MINING < most_dissimilar, cosine + MINING > least_similar)
