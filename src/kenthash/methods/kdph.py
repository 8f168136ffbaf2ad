"""KDPH: Kent-based distributional proxy hashing, after the paper "Absorbing Gradient Conflicts: Modeling Semantic
Variance via Kent Distributions for Cross-Modal Hashing".

    L = L_proxy + ε L_reg + ζ L_cm + η L_u

The same file gives the paper's ablation: `proxy` point or vmf instead of kent, and a weight of 0 for a term left out.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from kenthash.losses.infonce import Temperature, info_nce
from kenthash.losses.irrelevance import irrelevance
from kenthash.losses.proxy_triplet import proxy_triplet
from kenthash.losses.thresholds import code_threshold
from kenthash.losses.uniform import fair_codes, uniform
from kenthash.methods.base import Batch, Method, Shapes
from kenthash.proxies.kinds import Frame, Kind, make_proxies, measures_of


@dataclass(frozen=True)
class Settings:
    epsilon: float = 40.0  # weight of irrelevance, paper
    zeta: float = 0.3  # weight of alignment, paper
    eta: float = 0.1  # weight of the uniform constraint, paper
    margin: float = 0.3  # m of the triplet term; the paper does not give it, this is the value of public code
    axes: int | None = None  # N_axes; None is the paper's K/8
    proxy: Kind = "kent"
    frame: Frame = "thin"  # the same frames from fewer parameters, or the paper's K×K matrix
    irrelevance: Literal["threshold", "paper"] = "threshold"  # DSPH's form, or the plain mean that the paper prints
    temperature: float = 0.07  # τ at the start; it is learned


class Kdph(Method):
    key = "kdph"
    title = "KDPH"
    citation = "Zhu et al., Absorbing Gradient Conflicts: Kent Distributions for Cross-Modal Hashing, IJCAI 2026"
    fidelity = "paper"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "proxy_optimizer": {"name": "adamw", "lr": 0.02, "weight_decay": 5e-4, "warmup": 0.0, "decay": "constant"},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.proxies = make_proxies(settings.proxy, shapes.classes, shapes.bits, settings.axes, settings.frame)
        self.temperature = Temperature(settings.temperature)
        self.threshold = code_threshold(shapes.bits, shapes.classes) if settings.irrelevance == "threshold" else None

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Terms of weight 0 are left out, so that an ablation does not pay for what it drops."""
        s = self.settings
        scores = self.proxies.scores(normalize(torch.cat([batch.x, batch.t])))
        # Both modalities: the mean over the 2B stacked samples, twice, is the sum of the two means.
        terms = {"proxy": 2 * proxy_triplet(scores, batch.labels.repeat(2, 1), s.margin)}
        if s.epsilon:
            terms["irrelevance"] = irrelevance(
                batch.x, batch.t, batch.labels, threshold=self.threshold, multi_label_only=self.threshold is not None
            )
        if s.zeta:
            terms["alignment"] = info_nce(batch.x, batch.t, self.temperature())
        if s.eta:
            # One fair draw a batch, shared by both modalities, each with its own assignment.
            codes = fair_codes(batch.x)
            terms["uniform"] = uniform(batch.x, codes) + uniform(batch.t, codes)
        return terms

    def weights(self) -> dict[str, float]:
        s = self.settings
        return {"proxy": 1.0, "irrelevance": s.epsilon, "alignment": s.zeta, "uniform": s.eta}

    def measures(self) -> dict[str, Tensor]:
        return {"temperature": self.temperature().detach(), **measures_of(self.proxies)}
