"""A class as a point, a von Mises-Fisher or a Kent distribution: `scores(z)` and `mean_directions()` of each."""

from typing import Protocol

from torch import Tensor

from kenthash.proxies.kent import KentProxies
from kenthash.proxies.point import PointProxies
from kenthash.proxies.vmf import VmfProxies


class ClassProxies(Protocol):
    """What every kind has in common."""

    def scores(self, z: Tensor) -> Tensor:
        """[B, C] of unit vectors z [B, K]."""

    def mean_directions(self) -> Tensor:
        """[C, K], of length 1."""


__all__ = ["ClassProxies", "KentProxies", "PointProxies", "VmfProxies"]
