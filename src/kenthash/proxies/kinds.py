"""The kinds of proxies by name, for methods that let a recipe choose: the paper's ablation is such a choice."""

from typing import Literal

from torch import Tensor

from kenthash.errors import UsageError
from kenthash.proxies.kent import KentProxies
from kenthash.proxies.point import PointProxies
from kenthash.proxies.vmf import VmfProxies

Kind = Literal["kent", "vmf", "point"]
Frame = Literal["thin", "full"]


def make_proxies(
    kind: Kind, classes: int, bits: int, axes: int | None, frame: Frame
) -> KentProxies | VmfProxies | PointProxies:
    """Proxies of a kind; `axes` and `frame` are Kent's, and None axes are the paper's K/8."""
    axes = bits // 8 if axes is None else axes
    if not 1 <= axes < bits:
        raise UsageError(f"settings.axes: {axes} axes do not fit {bits} bits: 1 to {bits - 1} do")
    if kind == "kent":
        return KentProxies(classes, bits, axes, frame=frame)
    return VmfProxies(classes, bits) if kind == "vmf" else PointProxies(classes, bits)


def measures_of(proxies: KentProxies | VmfProxies | PointProxies) -> dict[str, Tensor]:
    """κ and β, as far as the kind has them, for the log of a run."""
    measures = {}
    if not isinstance(proxies, PointProxies):
        measures["kappa"] = proxies.concentration().detach()
    if isinstance(proxies, KentProxies):
        measures["beta"] = proxies.shape().detach()
    return measures
