"""Quantisation: outputs are drawn to the codes that their signs will be."""

import torch
from torch import Tensor


def signs(h: Tensor) -> Tensor:
    """The codes ±1 that outputs stand for, without gradient and of their type; 0 counts as positive, as when packed."""
    return torch.where(h.detach() >= 0, 1.0, -1.0).to(h)


def quantisation(h: Tensor) -> Tensor:
    """mean_i ‖h_i − sign h_i‖² for outputs h [B, K]."""
    return (h - signs(h)).square().sum(-1).mean()
