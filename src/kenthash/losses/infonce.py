"""Symmetric InfoNCE (KDPH, section "Cross-Modal Contrastive Alignment")."""

from math import inf, log

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, normalize

from kenthash.errors import UsageError


def info_nce(x: Tensor, t: Tensor, temperature: Tensor | float) -> Tensor:
    """L(x→t) + L(t→x), each the cross-entropy of finding the matching row among the other modality's rows:

        L(x→t) = −1/B Σ_k log [ exp(cos(x_k, t_k)/τ) / Σ_j exp(cos(x_k, t_j)/τ) ]

    `x` and `t` [B, K] of any length, row k of one belonging to row k of the other.

    Example:

        >>> info_nce(torch.eye(4), torch.ones(4, 4), 0.07).div(2).exp().round(decimals=3)  # one in four, both ways
        tensor(4.)
    """
    x, t = normalize(torch.cat([x, t]), dim=-1).chunk(2)
    logits = x @ (t / temperature).mT
    return -(log_softmax(logits, 1).diagonal() + log_softmax(logits, 0).diagonal()).mean()


class Temperature(nn.Module):
    """A learned τ, kept as log τ so that a step scales it, and held between 0.01 (CLIP's bound) and 1.

    The gradient passes the bounds, so that a τ that has run into one can come back.
    """

    def __init__(self, start: float) -> None:
        super().__init__()
        if not 0 < start < inf:
            raise UsageError(f"settings.temperature: {start} must be a number above 0")
        self.log = nn.Parameter(torch.tensor(start).log())

    def forward(self) -> Tensor:
        held = self.log.clamp(log(0.01), 0.0)
        return (self.log + (held - self.log).detach()).exp()
