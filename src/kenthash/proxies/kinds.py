"""The kinds of proxies by name, for methods that let a recipe choose: the paper's ablation is such a choice."""

from typing import Literal

from torch import Tensor

from kenthash.errors import UsageError
from kenthash.proxies.kent import CONCENTRATION, SHAPE, FreeKentProxies, KentProxies
from kenthash.proxies.point import PointProxies
from kenthash.proxies.vmf import VmfProxies

Kind = Literal["kent", "vmf", "point", "free"]  # free: the axes of the KDPH authors' code
Frame = Literal["thin", "full"]
Proxies = KentProxies | VmfProxies | PointProxies | FreeKentProxies


def make_proxies(
    kind: Kind,
    classes: int,
    bits: int,
    axes: int | None,
    frame: Frame,
    concentration: float = CONCENTRATION,
    shape: float = SHAPE,
) -> Proxies:
    """Proxies of a kind, with κ and β at their first values `concentration` and `shape` as far as the kind has them.

    `axes` and `frame` are Kent's, and None axes are the paper's K/8.
    """
    axes = bits // 8 if axes is None else axes
    if not 1 <= axes < bits:
        raise UsageError(f"settings.axes: {axes} axes do not fit {bits} bits: 1 to {bits - 1} do")
    if kind == "kent":
        return KentProxies(classes, bits, axes, frame, concentration, shape)
    if kind == "free":
        return FreeKentProxies(classes, bits, concentration, shape)
    return VmfProxies(classes, bits, concentration) if kind == "vmf" else PointProxies(classes, bits)


def measures_of(proxies: Proxies) -> dict[str, Tensor]:
    """κ and β, as far as the kind has them, for the log of a run."""
    measures = {}
    if not isinstance(proxies, PointProxies):
        measures["kappa"] = proxies.concentration().detach()
    if isinstance(proxies, KentProxies | FreeKentProxies):
        measures["beta"] = proxies.shape().detach()
    return measures
