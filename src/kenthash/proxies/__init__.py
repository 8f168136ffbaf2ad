"""A class as a point, a von Mises-Fisher or a Kent distribution: `scores(z)` and `mean_directions()` of each."""

from kenthash.proxies.kent import KentProxies
from kenthash.proxies.point import PointProxies
from kenthash.proxies.vmf import VmfProxies

__all__ = ["KentProxies", "PointProxies", "VmfProxies"]
