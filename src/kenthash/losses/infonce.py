"""Contrast of pairs: symmetric InfoNCE (KDPH, section "Cross-Modal Contrastive Alignment"), and NT-Xent; and InfoNCE
whose targets are another model's."""

from math import inf, log

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, normalize

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


def imitation(x: Tensor, t: Tensor, other_x: Tensor, other_t: Tensor, temperature: float) -> Tensor:
    """How far the similarities of a batch are from those that another model gives it: with P(x→t) the softmax over j of
    cos(x_k, t_j)/τ, and Q that of the other model,

        1/B Σ_k KL[ Q_k(x→t) ‖ P_k(x→t) ] + the same of t→x

    (affinity mimicking: Wu et al., TinyCLIP, ICCV 2023). Outputs `x` and `t` are [B, K], those of the other model
    [B, K'], of the same items. It takes no gradient.

    Example:

        >>> imitation(torch.eye(4), torch.eye(4), 2 * torch.eye(4), torch.eye(4), 0.07).round(decimals=6)
        tensor(0.)
    """
    x, t = normalize(torch.cat([x, t]), dim=-1).chunk(2)
    other_x, other_t = normalize(torch.cat([other_x, other_t]).detach(), dim=-1).chunk(2)
    logits, targets = x @ (t / temperature).mT, other_x @ (other_t / temperature).mT

    def divergence(p: Tensor, q: Tensor) -> Tensor:
        return kl_div(p.log_softmax(1), q.log_softmax(1), reduction="batchmean", log_target=True)

    return divergence(logits, targets) + divergence(logits.mT, targets.mT)


def nt_xent(x: Tensor, t: Tensor, temperature: float) -> Tensor:
    """NT-Xent (Chen et al., SimCLR, ICML 2020): InfoNCE with the rows of both modalities as negatives.

        −1/2B Σ_i log [ exp(cos(z_i, z_p(i))/τ) / Σ_{j≠i} exp(cos(z_i, z_j)/τ) ]

    over the 2B rows z of `x` and `t` [B, K] together, p(i) being the row of the same item in the other modality.

    Example:

        >>> nt_xent(torch.eye(4), torch.eye(4), 1.0)  # log(e + 6) − 1: one row like itself, six unlike
        tensor(1.1654)
    """
    z = normalize(torch.cat([x, t]), dim=-1)
    rows = torch.arange(len(z), device=z.device)
    logits = (z @ (z / temperature).T).fill_diagonal_(-inf)
    return cross_entropy(logits, rows.roll(len(x)))


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
        bounded = self.log.clamp(log(0.01), 0.0)
        return (self.log + (bounded - self.log).detach()).exp()
