"""The targets of `kenthash reproduce`, in the order of the report. One file each: a study to an outcome."""

from collections.abc import Callable

from kenthash.studies.outcome import Outcome
from kenthash.studies.study import Study
from kenthash.studies.targets.ablation import ablation
from kenthash.studies.targets.baseline import baseline
from kenthash.studies.targets.bytes import bytes_per_item
from kenthash.studies.targets.causes import causes
from kenthash.studies.targets.chaos import chaos_index
from kenthash.studies.targets.collapse import collapse
from kenthash.studies.targets.companions import with_companions
from kenthash.studies.targets.conditions import few, long_codes, missing, noise
from kenthash.studies.targets.conflicts import conflicts
from kenthash.studies.targets.gtsd import gtsd
from kenthash.studies.targets.nested import nested
from kenthash.studies.targets.oscillation import oscillation
from kenthash.studies.targets.sensitivity import sensitivity
from kenthash.studies.targets.shape import shape
from kenthash.studies.targets.table1 import table1
from kenthash.studies.targets.topology import topology
from kenthash.studies.targets.trajectories import trajectories
from kenthash.studies.targets.transfer import transfer
from kenthash.studies.targets.tsne import embedding
from kenthash.studies.targets.unseen import unseen

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
    "bytes": bytes_per_item,
}

# Settings that decide in practice and that the paper does not measure: by name only, not part of `all`.
PRACTICE: dict[str, Callable[[Study], Outcome]] = {
    "noise": noise,
    "missing": missing,
    "few": few,
    "unseen": unseen,
    "transfer": transfer,
    "long": long_codes,
    "nested": nested,
    "companions": with_companions,
}

# What can be measured where labels are of no use, by own pairs alone.
OF_OWN_PAIRS = ("bytes", "missing", "few", "transfer", "long", "nested")
