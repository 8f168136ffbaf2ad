"""UCCH: unsupervised contrastive cross-modal hashing. It learns from pairs of pictures and texts alone.

    L = α (L_c(x) + L_c(t)) + (1 − α) L_r(x, t)

L_c is a contrast with the codes of a memory (`losses/memory_contrast.py`) that holds for each training item a moving
average, momentum 0.4, of the direction of x + t; its signs are the codes, so that no binary value is relaxed. Negatives
are 4,096 codes drawn at random. In the first epoch, when the memory holds nothing yet, the codes are the batch's own.
L_r ranks pairs above all other combinations (`losses/cross_ranking.py`).

Losses and values after the authors' code (margin, α and shift as in its example). Changed: the negatives are drawn once
for a batch, not for each item, so that one product compares them all; the head of pictures has one hidden layer of
8,192 units like that of texts, where theirs has two; the rate is that of the shared recipe, as their 1e-4 is for 100
epochs.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from kenthash.losses.cross_ranking import cross_ranking
from kenthash.losses.memory_contrast import code_contrast
from kenthash.losses.quantisation import signs
from kenthash.methods.base import Batch, Method, Shapes


@dataclass(frozen=True)
class Settings:
    alpha: float = 0.7  # α, the weight of the contrast with codes; the ranking has the rest
    temperature: float = 0.9  # τ
    negatives: int = 4096
    momentum: float = 0.4  # of the memory
    margin: float = 0.2
    shift: float = 0.1  # 1 is the default of the authors' code, 0.1 that of its example


class Ucch(Method):
    key = "ucch"
    title = "UCCH"
    citation = "Hu et al., Unsupervised Contrastive Cross-Modal Hashing, TPAMI 2023"
    fidelity = "code"
    settings_class = Settings
    needs_labels = False
    recipe: ClassVar[dict[str, Any]] = {
        "head": {"kind": "tanh", "hidden": 8192, "dropout": 0.0},
        "batch": 256,
        "optimizer": {"name": "adam", "beta2": 0.999, "eps": 1e-8, "weight_decay": 1e-6},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.memory: Tensor
        self.seen: Tensor
        self.register_buffer("memory", normalize(signs(torch.randn(shapes.items, shapes.bits))))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        x, t, s = batch.x, batch.t, self.settings
        both = (normalize(x) + normalize(t)).detach()
        own, others = signs(both), None
        if self.seen >= self.shapes.items:  # after the first epoch
            own = signs(self.memory[batch.items])
            others = signs(self.memory[torch.randint(self.shapes.items, (s.negatives,), device=x.device)])
        self._remember(batch.items, both)
        return {
            "contrast": code_contrast(x, own, s.temperature, others) + code_contrast(t, own, s.temperature, others),
            "ranking": cross_ranking(x, t, s.margin, s.shift),
        }

    def _remember(self, items: Tensor, both: Tensor) -> None:
        momentum = self.settings.momentum if self.seen >= self.shapes.items else 0.0
        before = self.memory[items]
        self.memory[items] = normalize(momentum * before + (1 - momentum) * normalize(both).to(before))
        self.seen += len(items)

    def weights(self) -> dict[str, float]:
        return {"contrast": self.settings.alpha, "ranking": 1 - self.settings.alpha}
