"""The methods by their command-line names. A new one is a file beside this and a line below."""

from kenthash.methods.base import Batch, Method, Shapes, settings_of
from kenthash.methods.dagth import Dagth
from kenthash.methods.dchmt import Dchmt
from kenthash.methods.dcph import Dcph
from kenthash.methods.ddbh import Ddbh
from kenthash.methods.dnch import Dnch
from kenthash.methods.dnph import Dnph
from kenthash.methods.dnph_tmm import DnphTmm
from kenthash.methods.dsph import Dsph
from kenthash.methods.kaph import Kaph
from kenthash.methods.kdph import Kdph
from kenthash.methods.mian import Mian
from kenthash.methods.mith import Mith
from kenthash.methods.nivmf import Nivmf
from kenthash.methods.rdph import Rdph

METHODS: dict[str, type[Method]] = {
    method.key: method
    for method in (
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
    )
}

__all__ = ["METHODS", "Batch", "Method", "Shapes", "settings_of"]
