"""RSHNL: robust self-paced hashing against noisy labels.

    L = w l + γ (w²/2 − w) + α M(x, t),    l = ρ(p(x)) + ρ(p(t)),    ρ(p) = (1 − q)(1 − p^q)/q + q (1 − p)

p is the probability that a softmax over the cosines to class centres gives to an item's labels. ρ lies between the
cross-entropy, which a wrong label pulls without limit, and the absolute error, which it pulls as little as any other,
with q = 0.01. From the sixth epoch on items have weights w = max(0, 1 − l/γ): what fits its labels badly, as wrong
labels do, counts less, and not at all from l = γ on. M is the contrast of pictures with their texts, with the same ρ in
place of the logarithm and no labels in it. Centres are the outputs of a network C→4096→K.

Losses and values after the authors' code. Its γ is given for each of four sets, 3, 5, 8 and 9 for 10, 20, 100 and 200
classes: the smallest l that cosines can reach grows with log C. γ = 2 ln C − 1.6 is within 0.7 of all four, and the
default. Changed: heads and centres have one hidden layer of 4,096 units where theirs have two; the rate is that of the
shared recipe, as their 1e-4 is for 150 epochs. An item's p is the sum over its labels, as in the code; it was made for
sets with one label for each item.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from kenthash.methods.base import Batch, Method, Shapes


@dataclass(frozen=True)
class Settings:
    q: float = 0.01
    contrast: float = 0.1  # α
    temperature: float = 1.0  # of the contrast
    gamma: float | None = None  # the loss at which an item counts no more; None is 2 ln C − 1.6
    warm: int = 5  # epochs in which all items count alike


class Rshnl(Method):
    key = "rshnl"
    title = "RSHNL"
    citation = "Pu et al., Robust Self-Paced Hashing for Cross-Modal Retrieval with Noisy Labels, AAAI 2025"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "head": {"kind": "tanh", "hidden": 4096, "dropout": 0.0},
        "batch": 256,
        "optimizer": {"name": "adam", "beta2": 0.999, "eps": 1e-8},
        "proxy_optimizer": {"name": "adam", "beta2": 0.999, "eps": 1e-8},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.network = nn.Sequential(
            nn.Linear(shapes.classes, 4096), nn.ReLU(), nn.Linear(4096, shapes.bits), nn.Tanh()
        )
        least = 2 * math.log(max(shapes.classes, 3)) - 1.6
        self.gamma = least if settings.gamma is None else settings.gamma
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        x, t, s = batch.x, batch.t, self.settings
        centres = normalize(self.network(torch.eye(self.shapes.classes, dtype=x.dtype, device=x.device)))
        chances = ((normalize(h) @ centres.T).softmax(1) for h in (x, t))
        losses = torch.stack([robust((p * batch.labels).sum(1), s.q) for p in chances]).sum(0)
        labelled = batch.labelled
        if self.seen >= s.warm * self.shapes.items:
            losses = paced(losses, self.gamma)
        self.seen += len(batch.items)
        return {
            "classes": losses[labelled].sum() / labelled.sum().clamp(min=1),
            "contrast": robust_contrast(x, t, s.q, s.temperature),
        }

    def weights(self) -> dict[str, float]:
        return {"classes": 1.0, "contrast": self.settings.contrast}


def robust(p: Tensor, q: float) -> Tensor:
    """ρ(p) = (1 − q)(1 − p^q)/q + q (1 − p): for q → 0 the cross-entropy −ln p, for q = 1 the error 1 − p."""
    p = p.clamp(min=1e-12)
    return (1 - q) * (1 - p**q) / q + q * (1 - p)


def paced(losses: Tensor, gamma: float) -> Tensor:
    """w l + γ (w²/2 − w) with w = max(0, 1 − l/γ), which takes no gradient."""
    w = (1 - losses.detach() / gamma).clamp(min=0)
    return w * losses + gamma * (w.square() / 2 - w)


def robust_contrast(x: Tensor, t: Tensor, q: float, temperature: float) -> Tensor:
    """Twice the mean of ρ over the rows of `x` and `t` [B, K] together, p being the chance of the row's own pair among
    all other rows of both. Twice, since the authors' code adds rows and columns of a symmetric table."""
    z = normalize(torch.cat([x, t]))
    logits = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    own = torch.arange(len(z), device=z.device).roll(len(x))
    p = logits.log_softmax(1).gather(1, own[:, None]).exp()
    return 2 * robust(p, q).mean()
