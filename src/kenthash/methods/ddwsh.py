"""DDWSH: hashing by distance-weighted sampling (Wu et al., Sampling Matters in Deep Embedding Learning, ICCV 2017) for
two modalities.

Over (x, x), (t, t) and (x, t), every item draws one item that shares a label with it and one that does not, and a
boundary β separates the distances d of unit outputs:

    Σ [ max(0, d_ap − β + m) + max(0, β − d_an + m) ] / number of terms above 0,   m = 0.2

β is learned for each class, from 1.2 on, and an item has the mean of its classes'. Dissimilar items are drawn with a
probability of 1/q(d), where q is the density of distances between random points of the sphere in K dimensions,

    log q(d) = (K − 2) log d + (K − 3)/2 log(1 − d²/4),

so that all distances are drawn alike; d counts as at least 0.5, since weights would explode below.

A reconstruction after the authors' public code, which does not run (it calls its miner with the wrong arguments and
reads names that do not exist): formulas and values are from there, what is missing follows Wu et al.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method, Shapes
from kenthash.methods.pairs import across_and_within, shares_label

NEAREST = 0.5  # distance below which all items have the same weight


@dataclass(frozen=True)
class Settings:
    margin: float = 0.2
    boundary: float = 1.2  # β at the start


class Ddwsh(Method):
    key = "ddwsh"
    title = "DDWSH"
    # The authors' public repository names the paper and not its authors.
    citation = (
        "QinLab-WFU, Deep Distance Weighted Sampling Hashing for Cross-modal Retrieval, IEEE document 11353914, "
        "TMM 2026"
    )
    fidelity = "reconstruction"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "optimizer": FIELD_OPTIMIZER,
        "proxy_optimizer": FIELD_OPTIMIZER,
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.boundaries = nn.Parameter(torch.full((shapes.classes,), settings.boundary))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        labels = batch.labels
        similar = shares_label(labels, labels)
        beta = (labels @ self.boundaries) / labels.sum(1).clamp(min=1)

        def loss(a: Tensor, b: Tensor) -> Tensor:
            distance = sphere_distance(a, b)
            anchors, positives, negatives = weighted_triplets(distance.detach(), similar, self.shapes.bits)
            near, far = distance[anchors, positives], distance[anchors, negatives]
            return boundary_hinge(near, far, beta[anchors], self.settings.margin)

        return across_and_within(loss, batch.x, batch.t)

    def weights(self) -> dict[str, float]:
        return {"inter": 1.0, "intra": 1.0}

    def measures(self) -> dict[str, Tensor]:
        return {"boundary": self.boundaries.detach()}


def sphere_distance(a: Tensor, b: Tensor) -> Tensor:
    """[N, M] Euclidean distances of the directions of `a` and `b`."""
    # The root has no gradient at 0: an item and itself send none.
    return (2 - 2 * normalize(a) @ normalize(b).T).clamp(min=1e-8).sqrt()


def weighted_triplets(distance: Tensor, similar: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Positions of anchors, items that share a label with them and items that do not: one triplet for each row of
    [N, N] distances that has both, other than itself."""
    positive = similar & ~torch.eye(len(similar), dtype=torch.bool, device=similar.device)
    anchors = (positive.any(1) & ~similar.all(1)).nonzero().flatten()
    if not len(anchors):
        return anchors, anchors, anchors
    chances = inverse_density(distance[anchors], bits, ~similar[anchors])
    positives = positive[anchors].to(distance).multinomial(1).flatten()
    return anchors, positives, chances.multinomial(1).flatten()


def inverse_density(distance: Tensor, bits: int, allowed: Tensor) -> Tensor:
    """1/q(d) of [N, M] distances, up to a factor for each row, and 0 where not `allowed`."""
    d = distance.clamp(min=NEAREST)
    log_density = (bits - 2) * d.log() + (bits - 3) / 2 * (1 - d.square() / 4).clamp(min=1e-8).log()
    return (-log_density).masked_fill(~allowed, -torch.inf).softmax(1)


def boundary_hinge(near: Tensor, far: Tensor, beta: Tensor, margin: float) -> Tensor:
    """The sum of max(0, near − β + m) and max(0, β − far + m) over triplets, by the number of those above 0."""
    losses = torch.stack([near - beta, beta - far]).add(margin).clamp(min=0)
    return losses.sum() / (losses > 0).sum().clamp(min=1)
