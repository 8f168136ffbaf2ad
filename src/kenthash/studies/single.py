"""`kenthash analyze`: the paper's measures of one finished run.

Of every run: how well its codes find classes and hardest labels. Of a run with proxies: GTSD and topology after the
last epoch. Of a recorded run (`kenthash reproduce` makes them): flip rate and Chaos Index.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kenthash.analysis.chaos import PARTS
from kenthash.analysis.cooccurrence import average_cooccurring_labels
from kenthash.analysis.topology import cosines, nearest_proxy_cosine
from kenthash.runs.folder import Run
from kenthash.runs.record import has_record
from kenthash.studies.groups import find_groups, read_groups
from kenthash.studies.outcome import mean
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.subject import Subject
from kenthash.studies.targets.chaos import NEAREST, kinematics, precision_at
from kenthash.studies.targets.collapse import by_count
from kenthash.studies.targets.gtsd import divergences
from kenthash.studies.targets.oscillation import dynamics
from kenthash.studies.targets.topology import topologies


def analyse(path: Path, data: Path | None = None, groups: Path | None = None) -> dict[str, Any]:
    """All measures as plain values: NaN is None, classes and groups by name. Missing parts have no key."""
    run = Run.open(path)
    if data is not None:
        run = replace(run, recipe=replace(run.recipe, data=str(data)))
    subject = Subject(run, run.source(torch.device("cpu")))
    dataset = subject.source.dataset
    ap, hard = by_count([subject])
    result: dict[str, Any] = {
        "method": run.recipe.method,
        "bits": run.recipe.bits,
        "seed": run.recipe.seed,
        "protocol": run.recipe.protocol,
        "ties": "expected",
        "split": run.split.digest(),
        "map_by_labels": {str(n): value for n, (value, _) in ap.items()},
        "subordinate_precision_by_labels": {str(n): value for n, (value, _) in hard.items()},
    }
    by_class: dict[str, Any] = {
        "acl": average_cooccurring_labels(dataset.labels),
        f"precision_at_{NEAREST}": precision_at(subject),
    }
    if (path / "checkpoint").is_dir() and subject.proxies is not None:
        cosine, own = divergences([subject])
        result["gtsd_by_labels"] = {
            str(n): {"items": d.items, "gtsd": d.gtsd, "maximum": d.maximum, "gtsd_own_score": own[n].gtsd}
            for n, d in cosine.items()
        }
        off_diagonal = cosines(subject.means)[~np.eye(len(subject.means), dtype=bool)]
        result["proxies"] = {
            "mean_cosine": mean(off_diagonal),
            "nearest_cosine": mean(nearest_proxy_cosine(subject.means)),
        }
        if (file := find_groups(Path(run.recipe.data), groups)) is not None:
            result["groups"] = {
                name: {"classes": g.classes, "intra": g.intra, "inter": g.inter, "separation": g.separation}
                for name, g in topologies([subject], read_groups(file, dataset.classes)).items()
            }
    if has_record(path):
        moves, path_of = dynamics([subject]), kinematics([subject])
        result["flip_rate_by_epoch"] = {str(t + 2): value for t, value in enumerate(moves.all_flips.tolist())}
        result["chaos"] = {"index": mean(path_of.index)} | {part: mean(path_of.parts[part]) for part in PARTS}
        by_class |= {"flip_rate": moves.late(moves.flips), "chaos": path_of.index}
    result["classes"] = {
        name: {measure: float(values[c]) for measure, values in by_class.items()}
        for c, name in enumerate(dataset.classes)
    }
    plain: dict[str, Any] = _plain(result)
    return plain


def as_text(result: dict[str, Any]) -> str:
    """Tables for a terminal."""
    basis = "{method}, {bits} bits, seed {seed}, protocol {protocol}, {ties} ties, split {split}.".format(**result)
    ap, hard = result["map_by_labels"], result["subordinate_precision_by_labels"]
    gaps = result.get("gtsd_by_labels", {})
    rows: list[list[Value]] = [
        [n, ap.get(n), hard[n], gaps.get(n, {}).get("gtsd"), gaps.get(n, {}).get("maximum")] for n in hard
    ]
    head = ["Labels", "mAP", "Subordinate P@50", "GTSD", "Max. score"]
    sheets = [
        Sheet(
            head, rows, f"By number of labels, both directions; 8 is 8 or more for mAP and precision. {basis}", digits=3
        )
    ]
    if groups := result.get("groups"):
        rows = [[name, g["classes"], g["intra"], g["inter"], g["separation"]] for name, g in groups.items()]
        caption = "Cosines of class directions after the last epoch, within a group and to other groups."
        sheets.append(Sheet(["Group", "Classes", "Intra", "Inter", "Separation"], rows, caption, digits=3))
    measures = list(next(iter(result["classes"].values())))
    rows = [[name, *values.values()] for name, values in result["classes"].items()]
    caption = "By class. ACL: mean number of other labels beside it; flip rate: of an epoch, second half of training."
    sheets.append(Sheet(["Class", *measures], rows, caption, digits=3))
    lines = [sheet.markdown() for sheet in sheets]
    if proxies := result.get("proxies"):
        lines.append(
            "cosine of two class directions: {mean_cosine:.3f}, to the nearest: {nearest_cosine:.3f}".format(**proxies)
        )
    if chaos := result.get("chaos"):
        lines.append("Chaos Index, mean over classes: " + ", ".join(f"{name} {v:.3f}" for name, v in chaos.items()))
    else:
        lines.append(
            "no record of its epochs, so no flip rate and no Chaos Index: `kenthash reproduce` makes recorded runs"
        )
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, float):
        return None if np.isnan(value) else round(value, 6)
    return value
