"""DAGtH: deep adaptive gradient-triplet hashing.

Triplets with a margin that follows the data over (x, x), (t, t), (x, t) and (t, x), and a Householder rotation of the
outputs that makes bits decided: the head turns its outputs (model/heads.py), and the variance of bits is taken of √K
times the unit outputs, whose ideal entries are ±1.

A reconstruction: the authors have published the triplet loss for images only; the rest follows the abstract and the
Householder quantisation which it names. The paper learns the rotation after the similarities; here both are learned
together, which the triplets within a modality cannot notice, as a rotation leaves their cosines alone. Each modality
has its rotation, and the triplets across keep the two in one frame.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from kenthash.losses.adaptive_triplet import adaptive_triplet
from kenthash.losses.quantisation import bit_variance
from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method
from kenthash.methods.pairs import shares_label


@dataclass(frozen=True)
class Settings:
    variance: float = 1.0  # weight of the variance of bits


class Dagth(Method):
    key = "dagth"
    title = "DAGtH"
    citation = "Zhu et al., Deep adaptive gradient-triplet hashing for cross-modal retrieval, ESWA 2025"
    fidelity = "reconstruction"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "head": {"kind": "householder"},
        "optimizer": FIELD_OPTIMIZER,
    }

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        x, t = batch.x, batch.t
        similar = shares_label(batch.labels, batch.labels)
        others = similar & ~torch.eye(len(x), dtype=torch.bool, device=x.device)  # an item is not its own positive
        scale = math.sqrt(self.shapes.bits)
        return {
            "inter": adaptive_triplet(x, t, similar, ~similar) + adaptive_triplet(t, x, similar, ~similar),
            "intra": adaptive_triplet(x, x, others, ~similar) + adaptive_triplet(t, t, others, ~similar),
            "variance": bit_variance(scale * x) + bit_variance(scale * t),
        }

    def weights(self) -> dict[str, float]:
        return {"inter": 1.0, "intra": 1.0, "variance": self.settings.variance}
