"""Quantisation: terms that draw outputs to the codes that their signs will be."""

import torch
from torch import Tensor


def signs(h: Tensor) -> Tensor:
    """The codes ±1 that outputs stand for, without gradient and of their type; 0 counts as positive, as when packed."""
    return torch.where(h.detach() >= 0, 1.0, -1.0).to(h)


def quantisation(h: Tensor) -> Tensor:
    """mean_i ‖h_i − sign h_i‖² for outputs h [B, K]."""
    return (h - signs(h)).square().sum(-1).mean()


def bit_variance(z: Tensor) -> Tensor:
    """The Householder quantisation loss (Schwengber et al., arXiv 2311.04207): mean over samples and bits of

        F(z)(1 − F(z)),  F the logistic function

    That is the variance of a bit which is 1 with probability F(z): small where every z lies far from 0.
    """
    chance = z.sigmoid()
    return (chance * (1 - chance)).mean()
