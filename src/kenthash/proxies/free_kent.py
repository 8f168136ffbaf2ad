"""The class proxies of the KDPH authors' public code, which are not those of the paper."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from kenthash.proxies.positive import positive_log


class FreeKentProxies(nn.Module):
    """A mean μ and two axes γ₁, γ₂ of length 1 that are tied neither to μ nor to each other, κ and β by exp:

        κ μᵀz + β₁ (γ₁ᵀz)² − β₂ (γ₂ᵀz)² − ½ (κ + β₁ + β₂)

    where the paper has K/8 axes, all orthogonal, no negative square, softplus, and log(κ + ‖β‖₁).
    """

    def __init__(self, classes: int, bits: int, concentration: float = 1.0, shape: float = 1.0) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(classes, bits))
        self.axes = nn.Parameter(torch.randn(2, classes, bits))
        self.log_concentration = nn.Parameter(torch.full((classes,), positive_log(concentration)))
        self.log_shape = nn.Parameter(torch.full((2, classes), positive_log(shape)))

    def scores(self, z: Tensor) -> Tensor:
        """[B, C] for unit vectors z [B, K]."""
        kappa, beta = self.concentration(), self.shape()
        first, second = (z @ normalize(self.axes, dim=-1).mT).square()
        scores: Tensor = z @ (kappa[:, None] * self.mean_directions()).mT
        scores += beta[0] * first - beta[1] * second - (kappa + beta.sum(0)) / 2
        return scores

    def mean_directions(self) -> Tensor:
        """μ [C, K], of length 1."""
        return normalize(self.points, dim=-1)

    def concentration(self) -> Tensor:
        """κ [C]."""
        return self.log_concentration.exp()

    def shape(self) -> Tensor:
        """β [2, C]."""
        return self.log_shape.exp()
