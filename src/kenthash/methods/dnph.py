"""DNPH: deep neighbourhood-aware proxy hashing with uniform distribution constraint (the one of 2024 with proxies).

With D_ik = ‖ĥ_i − p̂_k‖² + m y_ik, images and texts stacked:

    mean_i Σ_k −y_ik log softmax_k(−D_i·)  +  classifiers  −  0.1 (uniform constraint, as in KDPH)

After the authors' code, with three of its faults mended: its proxies' optimiser is never stepped (here it is, at
DSPH's rate, as the 1e-4 given there hardly moves them), its classifiers learn the first label only (here all of a
sample's labels share the target), and they read the encoder's vectors, which teaches a frozen encoder nothing (here
they read the outputs).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from kenthash.losses.uniform import fair_codes, uniform
from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method, Shapes
from kenthash.proxies.point import PointProxies


@dataclass(frozen=True)
class Settings:
    margin: float = 1.0  # m, added to the distance to a sample's own proxies
    uniform: float = 0.1


class Dnph(Method):
    key = "dnph"
    title = "DNPH"
    citation = "Huo et al., Deep Neighborhood-aware Proxy Hashing with Uniform Distribution Constraint, TOMM 2024"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "optimizer": FIELD_OPTIMIZER,
        "proxy_optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9, "warmup": 0.0, "decay": "constant"},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.proxies = PointProxies(shapes.classes, shapes.bits)
        self.classify_image = nn.Linear(shapes.bits, shapes.classes)
        self.classify_text = nn.Linear(shapes.bits, shapes.classes)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        labels = batch.labels.repeat(2, 1)
        distances = 2 - 2 * self.proxies.scores(normalize(torch.cat([batch.x, batch.t])))
        share = normalize(batch.labels, p=1)
        codes = fair_codes(batch.x)
        return {
            "proxy": cross_entropy(-(distances + self.settings.margin * labels), labels),
            "classification": cross_entropy(self.classify_image(batch.x), share)
            + cross_entropy(self.classify_text(batch.t), share),
            "uniform": uniform(batch.x, codes) + uniform(batch.t, codes),
        }

    def weights(self) -> dict[str, float]:
        return {"proxy": 1.0, "classification": 1.0, "uniform": self.settings.uniform}
