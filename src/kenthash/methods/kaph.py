"""KAPH: Kent average-precision hashing, this project's own method.

    L = λ_r (Σ_{(x,t), (t,x)} L_AP + λ_w Σ_{(x,x), (t,t)} L_AP) + λ_p L_proxy

It learns what it is judged by: L_AP is the average precision of ranking a batch by (softened) Hamming distance, across
the modalities and within them (`losses/average_precision.py`). Classes are Kent distributions as in KDPH, and each
positive one is set against all negative ones by softmax (`losses/proxy_softmax.py`) instead of by a hinge. There is no
irrelevance, alignment or uniform term: why each went is in docs/findings.md.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from kenthash.errors import UsageError
from kenthash.losses.average_precision import average_precision_loss
from kenthash.losses.proxy_softmax import proxy_softmax
from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method, Shapes
from kenthash.methods.pairs import shares_label
from kenthash.proxies.kinds import Frame, Kind, make_proxies, measures_of


@dataclass(frozen=True)
class Settings:
    ranking: float = 1.0  # λ_r, weight of ranking; 0 leaves the proxies alone
    within: float = 1.0  # λ_w, its part within a modality
    proxies: float = 0.1  # λ_p, weight of the proxy term
    axes: int | None = None  # N_axes; None is K/8, as in KDPH
    proxy: Kind = "kent"
    frame: Frame = "thin"


class Kaph(Method):
    key = "kaph"
    title = "KAPH"
    citation = "kenthash, docs/findings.md, 2026"
    fidelity = "own"
    settings_class = Settings
    needs_captions = False
    recipe: ClassVar[dict[str, Any]] = {
        "head": {"kind": "mlp", "hidden": 2048, "dropout": 0.5, "slope": 3.0},
        "batch": 256,
        "optimizer": FIELD_OPTIMIZER,
        "proxy_optimizer": {"name": "adamw", "lr": 0.02},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        if not settings.ranking and not settings.proxies:
            raise UsageError("settings.ranking and settings.proxies are both 0: there is nothing to learn from")
        self.proxies = None
        if shapes.classes:
            self.proxies = make_proxies(settings.proxy, shapes.classes, shapes.bits, settings.axes, settings.frame)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Terms of weight 0 are left out, so that an ablation does not pay for what it drops.

        An item without labels is in no ranking, as what it is relevant to is not known, and an item without a caption
        in none of texts.
        """
        x, t, s = batch.x, batch.t, self.settings
        terms: dict[str, Tensor] = {}
        if self.proxies is None:
            return terms
        similar = shares_label(batch.labels, batch.labels)
        pictures, texts = batch.labelled, batch.labelled & batch.captioned
        if s.ranking:
            pairs = pictures[:, None] & texts
            terms["across"] = average_precision_loss(x, t, similar, pairs)
            terms["across"] += average_precision_loss(t, x, similar, pairs.mT)
        if s.ranking and s.within:
            others = ~torch.eye(len(x), dtype=torch.bool, device=x.device)
            terms["within"] = average_precision_loss(x, x, similar, others & pictures[:, None] & pictures)
            terms["within"] += average_precision_loss(t, t, similar, others & texts[:, None] & texts)
        if s.proxies:
            scores = self.proxies.scores(normalize(torch.cat([x, t[batch.captioned]])))
            terms["proxies"] = proxy_softmax(scores, torch.cat([batch.labels, batch.labels[batch.captioned]]))
        return terms

    def weights(self) -> dict[str, float]:
        s = self.settings
        return {"across": s.ranking, "within": s.ranking * s.within, "proxies": s.proxies}

    def measures(self) -> dict[str, Tensor]:
        return {} if self.proxies is None else measures_of(self.proxies)
