"""How much of its scores a Kent proxy owes to its shape.

A loss of proxies sees differences between the classes of one item, so that the parts of a score are compared by how
much they differ from class to class:

    share = deviation of q_ic / deviation of s_ic,   q_ic = Σ_a β_ca (γ_caᵀ z_i)²,   s the whole score,

both less their mean over the classes of the item. Of unit vectors without a preferred direction in K dimensions, κ μᵀz
has the deviation κ/√K and each β (γᵀz)² one of √2 β/K, so that with the K/8 axes of the paper the share is β/2κ at any
length, where it is small.
"""

from dataclasses import dataclass

import numpy as np
import torch

from kenthash.analysis.subject import Subject
from kenthash.evaluation import Scores
from kenthash.proxies import KentProxies


@dataclass(frozen=True)
class ShapeUse:
    """Means over classes and axes of κ and β, and the share above."""

    concentration: float
    shape: float
    share: float


def shape_use(subject: Subject) -> ShapeUse | None:
    """Of the proxies after the last epoch and the items that were not trained on, images and texts; None where the
    proxies are not Kent's."""
    if not isinstance(proxies := subject.proxies, KentProxies):
        return None
    cosines, scores, _ = subject.scores(subject.unseen)
    with torch.inference_mode():
        kappa, beta = proxies.concentration().cpu(), proxies.shape().cpu()
        constant = (kappa + beta.sum(dim=1)).log()
    quadratic = scores - (cosines * kappa.numpy() - constant.numpy())
    share = _deviation(quadratic) / max(_deviation(scores), 1e-12)
    return ShapeUse(float(kappa.mean()), float(beta.mean()), share)


def _deviation(scores: Scores) -> float:
    """From the mean of each item."""
    return float(np.std(scores - scores.mean(axis=1, keepdims=True)))
