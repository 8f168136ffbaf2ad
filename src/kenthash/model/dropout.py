"""Dropout that does not care how many processes share a batch."""

import torch
import torch.distributed as dist
from torch import Tensor, nn


class SharedDropout(nn.Module):
    """Zero each value with probability `p` in training and scale the rest by 1/(1-p).

    Every process draws the mask of the whole global batch from the common random state and keeps its own rows.
    So two processes with half a batch each see the very masks that one process would, and learn the same model.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        together = dist.is_initialized()
        world, rank = (dist.get_world_size(), dist.get_rank()) if together else (1, 0)
        rows = len(x)
        kept = torch.rand((world * rows, *x.shape[1:]), device=x.device)[rank * rows : (rank + 1) * rows] >= self.p
        return x * kept / (1 - self.p)
