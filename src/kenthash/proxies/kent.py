"""A class as a Kent distribution on the sphere (KDPH, section "Kent-based Distributed Proxy Mechanism")."""

from math import isfinite, log
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from kenthash.errors import UsageError
from kenthash.proxies.energy import energy
from kenthash.proxies.frames import full_frames, skew, start_deviation, thin_frames
from kenthash.proxies.vmf import inverse_softplus

# Where κ and β start unless a method says otherwise. The paper does not say; these have one mode (2β < κ).
CONCENTRATION, SHAPE = 10.0, 1.0


class KentProxies(nn.Module):
    """Of each class: mean direction μ, axes γ_i orthogonal to it and to each other, concentration κ > 0, shape β_i > 0.

    The frame [μ, γ₁, ...] is a Cayley transform: `full` of a K × K skew matrix as published, `thin` of the part of it
    that the frame depends on, the same frames for fewer numbers and less time (`frames.py`). It starts random, so that
    classes differ. κ and β start equal for all classes.

    Example:

        >>> proxies = KentProxies(classes=3, bits=16, axes=2)
        >>> proxies.scores(proxies.mean_directions()).shape
        torch.Size([3, 3])
        >>> frames = proxies.frames()
        >>> torch.allclose(frames.mT @ frames, torch.eye(3).expand(3, 3, 3), atol=1e-5)
        True
    """

    def __init__(
        self,
        classes: int,
        bits: int,
        axes: int,
        frame: Literal["thin", "full"] = "thin",
        concentration: float = CONCENTRATION,
        shape: float = SHAPE,
    ) -> None:
        super().__init__()
        if not 0 <= axes < bits:
            raise UsageError(f"{axes} axes do not fit {bits} bits: 0 to {bits - 1} do")
        self.bits, self.columns, self.frame = bits, 1 + axes, frame
        size = self.columns if frame == "thin" else bits
        deviation = start_deviation(bits, size)
        self.skew = nn.Parameter(torch.randn(classes, size * (size - 1) // 2) * deviation)
        if frame == "thin":
            # Bᵀ, not B: its products run along memory.
            self.below = nn.Parameter(torch.randn(classes, size, bits - size) * deviation)
        self.raw_concentration = nn.Parameter(torch.full((classes,), inverse_softplus(concentration)))
        self.raw_shape = nn.Parameter(torch.full((classes, axes), inverse_softplus(shape)))

    def scores(self, z: Tensor) -> Tensor:
        """κ_c μ_cᵀz + Σ_i β_ci (γ_ciᵀz)² − log(κ_c + ‖β_c‖₁) [B, C] for unit vectors z [B, K]."""
        return energy(z, self.frames(), self.concentration(), self.shape())

    def frames(self) -> Tensor:
        """[C, K, 1+axes] with orthonormal columns: μ, then the axes."""
        if self.frame == "thin":
            return thin_frames(self.skew, self.below.mT)
        return full_frames(skew(self.skew, self.bits), self.columns)

    def mean_directions(self) -> Tensor:
        """μ [C, K]."""
        return self.frames()[..., 0]

    def concentration(self) -> Tensor:
        """κ [C]."""
        return softplus(self.raw_concentration)

    def shape(self) -> Tensor:
        """β [C, axes]."""
        return softplus(self.raw_shape)


class FreeKentProxies(nn.Module):
    """The class proxies of the KDPH authors' public code, which are not those of the paper.

    A mean μ and two axes γ₁, γ₂ of length 1 that are tied neither to μ nor to each other, κ and β by exp:

        κ μᵀz + β₁ (γ₁ᵀz)² − β₂ (γ₂ᵀz)² − ½ (κ + β₁ + β₂)

    where the paper has K/8 axes, all orthogonal, no negative square, softplus, and log(κ + ‖β‖₁).
    """

    def __init__(self, classes: int, bits: int, concentration: float = 1.0, shape: float = 1.0) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(classes, bits))
        self.axes = nn.Parameter(torch.randn(2, classes, bits))
        self.log_concentration = nn.Parameter(torch.full((classes,), _log_of(concentration)))
        self.log_shape = nn.Parameter(torch.full((2, classes), _log_of(shape)))

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


def _log_of(value: float) -> float:
    """Where the exp that keeps κ and β positive starts from to give `value` > 0."""
    if not (isfinite(value) and value > 0):
        raise UsageError(f"{value}: a concentration or shape must be a number above 0")
    return log(value)
