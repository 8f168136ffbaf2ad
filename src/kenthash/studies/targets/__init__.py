"""The targets of `kenthash reproduce`, in the order of the report. One file each: a study to an outcome."""

from collections.abc import Callable

from kenthash.studies.outcome import Outcome
from kenthash.studies.study import Study
from kenthash.studies.targets.ablation import ablation
from kenthash.studies.targets.baseline import baseline
from kenthash.studies.targets.causes import causes
from kenthash.studies.targets.chaos import chaos_index
from kenthash.studies.targets.collapse import collapse
from kenthash.studies.targets.conflicts import conflicts
from kenthash.studies.targets.gtsd import gtsd
from kenthash.studies.targets.oscillation import oscillation
from kenthash.studies.targets.sensitivity import sensitivity
from kenthash.studies.targets.shape import shape
from kenthash.studies.targets.table1 import table1
from kenthash.studies.targets.topology import topology
from kenthash.studies.targets.trajectories import trajectories
from kenthash.studies.targets.tsne import embedding

TARGETS: dict[str, Callable[[Study], Outcome]] = {
    "table1": table1,
    "baseline": baseline,
    "trajectories": trajectories,
    "oscillation": oscillation,
    "chaos": chaos_index,
    "collapse": collapse,
    "gtsd": gtsd,
    "topology": topology,
    "tsne": embedding,
    "ablation": ablation,
    "sensitivity": sensitivity,
    "conflicts": conflicts,
    "causes": causes,
    "shape": shape,
}
