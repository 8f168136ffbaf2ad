"""DCHMT: differentiable cross-modal hashing via multimodal transformers (DCMHT in some tables).

A bit is a pair of softmax units, and items are compared by the Euclidean distance of their 2K units. With the head's
output o = p₁ − p₀ the distance of two such vectors is ‖o − o'‖/√2, at most √(2K). Dissimilar items should be
M = √(2Kϑ) apart: ϑ = ½ is half of the bits.

Loss, head and values after the authors' code; the vision and text transformers are the project's encoders.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method
from kenthash.methods.pairs import across_and_within, shares_label


@dataclass(frozen=True)
class Settings:
    vartheta: float = 0.5  # ϑ, share of bits that dissimilar items should differ in; 0.75 in some of the authors' runs


class Dchmt(Method):
    key = "dchmt"
    title = "DCHMT"
    citation = "Tu et al., Differentiable Cross-modal Hashing via Multimodal Transformers, MM 2022"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "head": {"kind": "softmax_pair", "hidden": 128, "dropout": 0.0},
        "optimizer": FIELD_OPTIMIZER,
    }

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        similar = shares_label(batch.labels, batch.labels)
        reach = math.sqrt(2 * self.shapes.bits * self.settings.vartheta)
        x, t = batch.x / math.sqrt(2), batch.t / math.sqrt(2)
        return across_and_within(lambda a, b: pair_distance(a, b, similar, reach), x, t)

    def weights(self) -> dict[str, float]:
        return {"inter": 1.0, "intra": 1.0}


def pair_distance(a: Tensor, b: Tensor, similar: Tensor, reach: float) -> Tensor:
    """mean_ij [ S_ij d_ij² + (1 − S_ij) max(0, M − d_ij)² ], d the Euclidean distance and M = `reach`.

    `a` [N, K] against `b` [M, K] with boolean `similar` [N, M]. The mean is over all pairs, so that the rarer kind has
    less weight, as in the authors' code.
    """
    squared = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * (a @ b.T)
    # The root has no gradient at 0: two dissimilar items in the same place send none, and no NaN.
    distance = squared.clamp(min=1e-12).sqrt()
    return torch.where(similar, squared, (reach - distance).clamp(min=0).square()).mean()
