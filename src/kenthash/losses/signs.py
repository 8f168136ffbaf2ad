"""The code that outputs stand for, as a target of losses."""

import torch
from torch import Tensor


def signs(outputs: Tensor) -> Tensor:
    """±1 without gradient, of the type of `outputs`; 0 counts as positive, as in packed codes."""
    return torch.where(outputs.detach() >= 0, 1.0, -1.0).to(outputs)
