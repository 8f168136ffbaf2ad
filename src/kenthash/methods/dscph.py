"""DScPH: proxies by a loss after the F-score, triplets within each modality, and decided bits.

With c_ik the cosine of output i to proxy k of all C, for each modality

    1 − T / (T + F⁺ + F⁻)
    T  = 2 + 2 Σ_{y=1} max(0, c)
    F⁺ = Σ_{y=1} (1 − c) e^{1.3 (1 − c)},     F⁻ = Σ_{y=0, c > 0.3} (c − 0.3) e^{1.3 (c − 1)}

where the exponentials stress hard pairs and take no gradient; a proxy of another class counts only when it is near.

A learned rotation of the unit outputs should have bits of little variance (`losses/quantisation.py`). With `triplets`,
also: within each modality, triplets whose dissimilar item is farther than the similar one, but by less than ε = 0.25 in
the cosine, are pulled that far apart, and dissimilar items at an acute angle have their inner product as loss
(AdaTriplet, Nguyen et al., MICCAI 2022).

Losses and values after the authors' code, of which there are two versions: the paper's own repository, and their later
collection of methods (QinLab-WFU on GitHub, DScPH and CLIP-based-Cross-Modal-Hashing). They differ in three things, of
which the defaults are what was better on validation:

                                          paper's own     collection     here
    F⁻ counts c > `near` by c − `above`   0.3 and 0.3     0.9 and 0.7    0.3 and 0.3
    weight of `triplets`                  1               none           none
    rate of the proxies                   1e-5            1e-3           1e-3

With 0.9 nothing keeps an output from the proxies of other classes until it is within 26 degrees of them. With proxies
that learn at 1e-3 all outputs then gather in one cone, and after some epochs mAP falls while the loss still falls. A
rate of 1e-5 moves nothing in 20 epochs. In the paper's own repository the rule for ε and for the angle, which would
follow the data, never runs, as the object that has it is made anew in every epoch, so that both are constant here, too.

Codes are the signs of outputs that are not rotated, as in both. The collection does not train the rotation; here it
learns with the proxies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from kenthash.losses.quantisation import bit_variance
from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method, Shapes
from kenthash.methods.pairs import shares_label
from kenthash.model.heads import householder
from kenthash.proxies.point import PointProxies

STRESS = 1.3
SMOOTH = 2.0


@dataclass(frozen=True)
class Settings:
    near: float = 0.3  # a proxy of another class counts where its cosine is above this,
    above: float = 0.3  # by how far it is above this
    triplets: float = 0.0  # weight of triplets and of dissimilar items at an acute angle
    margin: float = 0.25  # ε
    variance: float = 1.0  # weight of the variance of bits


class Dscph(Method):
    key = "dscph"
    title = "DScPH"
    citation = "Qin et al., Deep Semantic-consistent Penalizing Hashing for Cross-modal Retrieval, TMM 2025"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "optimizer": FIELD_OPTIMIZER,
        "proxy_optimizer": {**FIELD_OPTIMIZER, "lr": 1e-3},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.proxies = PointProxies(shapes.classes, shapes.bits)
        nn.init.xavier_uniform_(self.proxies.points)
        self.reflections = nn.Parameter(torch.eye(shapes.bits))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        x, t, s = batch.x, batch.t, self.settings
        turn = householder(self.reflections)
        terms = {
            "proxy": sum_of(lambda h: self._f_score(h, batch.labels), x, t),
            "variance": sum_of(lambda h: bit_variance(normalize(h) @ turn), x, t),
        }
        if s.triplets:
            similar = shares_label(batch.labels, batch.labels)
            others = similar & ~torch.eye(len(x), dtype=torch.bool, device=x.device)
            terms["triplets"] = sum_of(lambda h: semi_hard(h, others, ~similar, s.margin), x, t)
            terms["angles"] = sum_of(lambda h: acute_products(h, ~similar), x, t)
        return terms

    def _f_score(self, h: Tensor, labels: Tensor) -> Tensor:
        return f_score(self.proxies.scores(normalize(h)), labels, self.settings.near, self.settings.above)

    def weights(self) -> dict[str, float]:
        s = self.settings
        return {"proxy": 1.0, "variance": s.variance, "triplets": s.triplets, "angles": s.triplets}


def sum_of(loss: Callable[[Tensor], Tensor], x: Tensor, t: Tensor) -> Tensor:
    """`loss` of both modalities."""
    return loss(x) + loss(t)


def f_score(cosine: Tensor, labels: Tensor, near: float, above: float) -> Tensor:
    """1 − T / (T + F⁺ + F⁻) of cosines [N, C] to the proxies."""
    fixed = cosine.detach()
    right = SMOOTH + 2 * (cosine.clamp(min=0) * labels).sum()
    missed = ((1 - cosine) * (STRESS * (1 - fixed)).exp() * labels).sum()
    wrong = (1 - labels) * (fixed > near)
    mistaken = ((cosine - above) * (STRESS * (fixed - 1)).exp() * wrong).sum()
    return 1 - right / (right + missed + mistaken)


def semi_hard(h: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """The mean of c_an − c_ap + ε over the triplets of outputs [N, K] in which c_an < c_ap ≤ c_an + ε; 0 without any.

    No N × N × N table: the dissimilar of an anchor are sorted once, and prefix sums have what lies within the margin.
    """
    cosine = normalize(h) @ normalize(h).T
    ascending = cosine.masked_fill(~negative, torch.inf).sort(dim=1).values
    below = ascending.where(ascending < torch.inf, 0).cumsum(1)
    below = torch.cat([below.new_zeros(len(h), 1), below], dim=1)  # below[i, n] = the sum of the n smallest
    first = torch.searchsorted(ascending.detach(), (cosine - margin).detach())
    last = torch.searchsorted(ascending.detach(), cosine.detach().contiguous())
    number = (last - first).where(positive, 0)
    sums = below.gather(1, last) - below.gather(1, first) + number * (margin - cosine)
    return sums.where(positive, 0).sum() / number.sum().clamp(min=1)


def acute_products(h: Tensor, negative: Tensor) -> Tensor:
    """The mean of ⟨h_i, h_j⟩ over the dissimilar pairs in which it is above 0; 0 without any."""
    products = h @ h.T
    acute = negative & (products.detach() > 0)
    return products.where(acute, 0).sum() / acute.sum().clamp(min=1)
