"""A class as a point: the proxy of DSPH and of the paper's ablation."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class PointProxies(nn.Module):
    """One direction per class; a sample's score is its cosine to it. Starts kaiming normal (fan-out), as in DSPH."""

    def __init__(self, classes: int, bits: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.empty(classes, bits))
        nn.init.kaiming_normal_(self.points, mode="fan_out")

    def scores(self, z: Tensor) -> Tensor:
        """cos(z, p_c) [B, C] for unit vectors z [B, K]."""
        return z @ self.mean_directions().mT

    def mean_directions(self) -> Tensor:
        """[C, K], of length 1."""
        return normalize(self.points, dim=-1)
