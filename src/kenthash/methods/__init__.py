"""The methods by their command-line names. A new one is a file beside this and a line below, or a class in a package of
its own that names it as an entry point of the group `kenthash.methods` (docs/add-a-method.md)."""

import logging
from importlib.metadata import EntryPoint, entry_points

from kenthash.methods.base import Batch, Method, Shapes, ShortQueries, settings_of
from kenthash.methods.closed_form import CcaItq, ClosedForm, Lsh, RabitqBits, Sign
from kenthash.methods.dagth import Dagth
from kenthash.methods.dchmt import Dchmt
from kenthash.methods.dcph import Dcph
from kenthash.methods.ddbh import Ddbh
from kenthash.methods.ddwsh import Ddwsh
from kenthash.methods.dhaph import Dhaph
from kenthash.methods.dnch import Dnch
from kenthash.methods.dnph import Dnph
from kenthash.methods.dnph_tmm import DnphTmm
from kenthash.methods.dpbe import Dpbe
from kenthash.methods.dscph import Dscph
from kenthash.methods.dsph import Dsph
from kenthash.methods.kaph import Kaph
from kenthash.methods.kcph import Kcph
from kenthash.methods.kdph import Kdph
from kenthash.methods.mian import Mian
from kenthash.methods.mith import Mith
from kenthash.methods.nivmf import Nivmf
from kenthash.methods.rdph import Rdph
from kenthash.methods.rshnl import Rshnl
from kenthash.methods.ucch import Ucch
from kenthash.methods.ucmfh import Ucmfh

log = logging.getLogger(__name__)

METHODS: dict[str, type[Method]] = {
    method.key: method
    for method in (
        Kcph,
        Kaph,
        Kdph,
        Dcph,
        Dchmt,
        Nivmf,
        Mian,
        Dsph,
        Mith,
        Dnph,
        DnphTmm,
        Rdph,
        Ddbh,
        Dnch,
        Dagth,
        Dhaph,
        Dscph,
        Dpbe,
        Ddwsh,
        Rshnl,
        Ucch,
        Ucmfh,
        Sign,
        Lsh,
        CcaItq,
        RabitqBits,
    )
}


def _add_installed(point: EntryPoint) -> None:
    """Add the method that another package brings. A package that does not bring one is named and left out, so that it
    does not stand in the way of the other methods."""
    fault = ""
    try:
        method = point.load()
    except Exception as error:  # whatever another package does when it is imported
        fault = f"cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    else:
        if not (isinstance(method, type) and issubclass(method, Method)):
            fault = "is not a subclass of kenthash.methods.Method"
        elif method.key in METHODS:
            fault = f"has the key {method.key!r} of another method"
        else:
            METHODS[method.key] = method
    if fault:
        package = point.dist.name if point.dist is not None else "another package"
        log.warning("the method %s of %s is left out: %s %s", point.name, package, point.value, fault)


for _point in entry_points(group="kenthash.methods"):
    _add_installed(_point)

__all__ = ["METHODS", "Batch", "ClosedForm", "Method", "Shapes", "ShortQueries", "settings_of"]
