"""A class as a von Mises-Fisher distribution: spread alike in all directions. The paper's ablation between point and
Kent."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from kenthash.proxies.positive import inverse_softplus


class VmfProxies(nn.Module):
    """Mean direction μ and concentration κ > 0 a class; the score is Kent's with β = 0: κ_c μ_cᵀz − log κ_c."""

    def __init__(self, classes: int, bits: int, concentration: float = 10.0) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.empty(classes, bits))
        nn.init.kaiming_normal_(self.points, mode="fan_out")
        self.raw_concentration = nn.Parameter(torch.full((classes,), inverse_softplus(concentration)))

    def scores(self, z: Tensor) -> Tensor:
        """[B, C] for unit vectors z [B, K]."""
        kappa = self.concentration()
        return z @ (kappa[:, None] * self.mean_directions()).mT - kappa.log()

    def mean_directions(self) -> Tensor:
        """μ [C, K], of length 1."""
        return normalize(self.points, dim=-1)

    def concentration(self) -> Tensor:
        """κ [C]."""
        return softplus(self.raw_concentration)
