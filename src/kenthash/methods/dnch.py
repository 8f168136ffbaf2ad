"""DNcH: deep neighbour-coherence hashing with discriminative sample mining.

The neighbour contrast over (x, x), (t, t), (x, t) and (t, x), with class centres from a small network C→64→K over
one-hot rows, plus 0.1 times the cross-entropy of the cosines to the centres against all of a sample's labels. Losses,
values and recipe after the authors' code, but for the mining of hard pairs, which that code misses by a slip.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from kenthash.losses.neighbour_contrast import neighbour_contrast
from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method, Shapes
from kenthash.methods.pairs import shares_label


@dataclass(frozen=True)
class Settings:
    classification: float = 0.1


class Dnch(Method):
    key = "dnch"
    title = "DNcH"
    citation = "Zhu et al., Deep neighbor-coherence hashing with discriminative sample mining, ESWA 2025"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "optimizer": FIELD_OPTIMIZER,
        "proxy_optimizer": FIELD_OPTIMIZER,
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.network = nn.Sequential(nn.Linear(shapes.classes, 64), nn.ReLU(), nn.Linear(64, shapes.bits), nn.Tanh())

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        x, t, labels = batch.x, batch.t, batch.labels
        similar = shares_label(labels, labels)
        centres = self.network(torch.eye(self.shapes.classes, dtype=x.dtype, device=x.device))
        cosines = normalize(torch.cat([x, t])) @ normalize(centres).T

        def contrast(a: Tensor, b: Tensor) -> Tensor:
            return neighbour_contrast(a, b, centres, labels, similar)

        return {
            "inter": contrast(x, t) + contrast(t, x),
            "intra": contrast(x, x) + contrast(t, t),
            "classification": 2 * cross_entropy(cosines, labels.repeat(2, 1)),
        }

    def weights(self) -> dict[str, float]:
        return {"inter": 1.0, "intra": 1.0, "classification": self.settings.classification}
