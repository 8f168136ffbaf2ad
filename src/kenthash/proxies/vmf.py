"""A class as a von Mises-Fisher distribution: spread alike in all directions. The paper's ablation between point and
Kent."""

from math import expm1, isfinite, log

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from kenthash.errors import UsageError


class VmfProxies(nn.Module):
    """Mean direction μ and concentration κ > 0 of each class; the score is Kent's with β = 0: κ_c μ_cᵀz − log κ_c."""

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


def inverse_softplus(value: float) -> float:
    """The x with log(1 + eˣ) = value, for value > 0: where the softplus that keeps κ and β positive starts."""
    if not (isfinite(value) and value > 0):
        raise UsageError(f"{value}: a concentration or shape must be a number above 0")
    return value + log(-expm1(-value))
