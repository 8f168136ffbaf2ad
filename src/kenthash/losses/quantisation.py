"""Quantisation: outputs are drawn to the codes that their signs will be."""

import torch
from torch import Tensor


def quantisation(h: Tensor) -> Tensor:
    """mean_i ‖h_i − sign h_i‖² for outputs h [B, K], with sign 0 = +1 as in the codes."""
    sign = torch.where(h >= 0, 1.0, -1.0).to(h.dtype)
    return (h - sign).square().sum(-1).mean()
