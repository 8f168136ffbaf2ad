"""KDPH: Kent-based distributional proxy hashing, after the paper "Absorbing Gradient Conflicts: Modeling Semantic
Variance via Kent Distributions for Cross-Modal Hashing".

    L = L_proxy + ε L_reg + ζ L_cm + η L_u

All terms and weights are the paper's. What it leaves open, and what the defaults change, was chosen once on validation
data, for all lengths and heads (docs/findings.md):

- the first κ and the margin m are not printed. With κ₀ = K/2 scores begin as Hamming distances: κ₀ cos(z, μ) is K/2 − d
  for codes z and μ that differ in d bits. The hinge sees differences of scores, which grow with κ, so m is relative to
  κ₀: it is given in bits, and one bit is worth 2κ₀/K. With the m = 0.3 of public code and κ₀ = 10 a pair is content at
  a difference of 0.03 in its cosines, and the classes' mean directions merge;
- the first β is not printed either. It starts at 0.1, close to no shape, and grows where the data asks for one;
- irrelevance has DSPH's threshold, and is over all pairs without a common label, as printed;
- the proxies have their own rate, which decays with that of the heads;
- the uniform term is a mean over the batch, where the paper prints a trace, that is a sum.

The recipes `kdph-printed` and `kdph-authors` are the method as printed and after the authors' public code. The same
file gives the paper's ablation: `proxy` point or vmf instead of kent, and a weight of 0 for a term left out.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from kenthash.losses.infonce import Temperature, info_nce
from kenthash.losses.irrelevance import irrelevance
from kenthash.losses.proxy_triplet import Over, proxy_triplet
from kenthash.losses.thresholds import code_threshold
from kenthash.losses.uniform import fair_codes, uniform
from kenthash.methods.base import Batch, Method, Shapes
from kenthash.proxies.kinds import Frame, Kind, make_proxies, measures_of


@dataclass(frozen=True)
class Settings:
    proxies: float = 1.0  # weight of the triplet term, paper
    epsilon: float = 40.0  # weight of irrelevance, paper
    zeta: float = 0.3  # weight of alignment, paper
    eta: float = 0.1  # weight of the uniform constraint, paper
    margin_bits: float = 32.0  # the margin of the triplet term in bits, each 2κ₀/K in scores
    margin: float | None = None  # the margin m itself, instead of margin_bits
    concentration: float | None = None  # κ₀, at the start; points keep it; None is K/2
    shape: float = 0.1  # β₀, at the start
    axes: int | None = None  # N_axes; None is the paper's K/8
    proxy: Kind = "kent"
    frame: Frame = "thin"  # the same frames from fewer parameters, or the paper's K×K matrix
    triplets: Over = "samples"  # the triplet term is a mean over samples as in the paper, or over all pairs of a batch
    irrelevance: Literal["threshold", "paper"] = "threshold"  # DSPH's form, or the plain mean that the paper prints
    pairs: Literal["all", "multi-label"] = "all"  # of irrelevance: the paper's, or only samples with several labels
    uniform: Literal["mean", "trace"] = "mean"  # over the batch, or its sum as printed
    temperature: float = 0.07  # τ at the start
    learned_temperature: bool = True  # paper


class Kdph(Method):
    key = "kdph"
    title = "KDPH"
    citation = "Zhu et al., Absorbing Gradient Conflicts: Kent Distributions for Cross-Modal Hashing, IJCAI 2026"
    fidelity = "paper"
    changes = "first κ K/2, first β 0.1, margin 32 bits, DSPH's threshold in irrelevance, an own rate for the proxies"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "proxy_optimizer": {"name": "adamw", "lr": 0.02, "weight_decay": 5e-4, "warmup": 0.0, "decay": "cosine"},
    }
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {
        "settings.margin_bits": (8.0, 16.0, 32.0, 64.0),
        "settings.concentration": (None, 10.0, 30.0),
        "settings.shape": (0.1, 1.0, 5.0),
        "settings.temperature": (0.07,),  # learned
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        kappa = shapes.bits / 2 if settings.concentration is None else settings.concentration
        self.concentration = kappa
        self.proxies = make_proxies(
            settings.proxy, shapes.classes, shapes.bits, settings.axes, settings.frame, kappa, settings.shape
        )
        in_bits = 2 * kappa / shapes.bits * settings.margin_bits
        self.margin = in_bits if settings.margin is None else settings.margin
        self.temperature = Temperature(settings.temperature).requires_grad_(settings.learned_temperature)
        self.threshold = code_threshold(shapes.bits, shapes.classes) if settings.irrelevance == "threshold" else None

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Terms of weight 0 are left out, so that an ablation does not pay for what it drops."""
        s = self.settings
        terms: dict[str, Tensor] = {}
        if s.proxies:
            scores = self.proxies.scores(normalize(torch.cat([batch.x, batch.t])))
            if s.proxy == "point":
                scores = self.concentration * scores  # so that a point differs from the other kinds by its form alone
            # Both modalities: the mean over the 2B stacked samples, twice, is the sum of the two means.
            terms["proxy"] = 2 * proxy_triplet(scores, batch.labels.repeat(2, 1), self.margin, s.triplets)
        if s.epsilon:
            terms["irrelevance"] = irrelevance(
                batch.x, batch.t, batch.labels, threshold=self.threshold, multi_label_only=s.pairs == "multi-label"
            )
        if s.zeta:
            terms["alignment"] = info_nce(batch.x, batch.t, self.temperature())
        if s.eta:
            # One fair draw per batch, shared by both modalities, each with its own assignment.
            codes = fair_codes(batch.x)
            summed = len(batch.x) if s.uniform == "trace" else 1
            terms["uniform"] = summed * (uniform(batch.x, codes) + uniform(batch.t, codes))
        return terms

    def weights(self) -> dict[str, float]:
        s = self.settings
        return {"proxy": s.proxies, "irrelevance": s.epsilon, "alignment": s.zeta, "uniform": s.eta}

    def measures(self) -> dict[str, Tensor]:
        return {"temperature": self.temperature().detach(), **measures_of(self.proxies)}
