"""A class as a non-isotropic von Mises-Fisher distribution (Kirchhof et al., ECCV 2022, section 3.3).

A proxy has a unit mean μ and a concentration per dimension κ ∈ R^K. The log-density of a unit vector z is

    log p(z) = (κ∘z)/‖κ∘z‖ · (κ∘μ) + log C_K(‖κ∘μ‖) + Σ_d log κ_d − log‖κ∘μ‖

With all κ_d equal the first two parts are the von Mises-Fisher log-density and the rest depends on κ alone.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from kenthash.proxies.bessel import log_vmf_normaliser

LEAST = 0.1  # of κ, as in the authors' code


def nivmf_log_density(z: Tensor, mu: Tensor, kappa: Tensor) -> Tensor:
    """[N, C] log-densities of unit vectors z [N, K] under C proxies with unit means [C, K] and κ [C, K]."""
    scaled = kappa * mu
    size = scaled.norm(dim=1)
    # ‖κ∘z‖ over all pairs is √(z² κ²ᵀ): two products of matrices, no [N, C, K] table.
    along = (z @ (kappa * scaled).T) / (z.square() @ kappa.square().T).clamp(min=1e-12).sqrt()
    density: Tensor = along + log_vmf_normaliser(size, z.shape[1]) + kappa.log().sum(dim=1) - size.log()
    return density


class NivmfProxies(nn.Module):
    """C proxies in R^K: random means, and every κ_d at `concentration`.

    The concentrations are learned as multiples of their first value, so that one step of Adam moves them in
    proportion: the authors' code gives them ten times the rate of the means, and starts them at ten.
    """

    def __init__(self, classes: int, bits: int, concentration: float) -> None:
        super().__init__()
        self.concentration = concentration
        self.means = nn.Parameter(torch.randn(classes, bits))
        self.factors = nn.Parameter(torch.ones(classes, bits))

    def kappa(self) -> Tensor:
        """[C, K], never below 0.1."""
        return (self.concentration * self.factors).clamp(min=LEAST)

    def scores(self, z: Tensor) -> Tensor:
        """[N, C] log-densities of unit vectors z [N, K]."""
        return nivmf_log_density(z, self.mean_directions(), self.kappa())

    def mean_directions(self) -> Tensor:
        """μ [C, K], of length 1."""
        return normalize(self.means)
