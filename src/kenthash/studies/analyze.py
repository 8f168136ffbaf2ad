"""`kenthash analyze`: the paper's measures of one finished run.

Of every run: how well its codes find classes and hardest labels. Of a run with proxies: GTSD and topology after the
last epoch. Of a recorded run (`kenthash reproduce` makes them): flip rate and Chaos Index.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kenthash.analysis.gtsd import divergences
from kenthash.analysis.oscillation import PARTS, dynamics, kinematics
from kenthash.analysis.precision import NEAREST, precision_at_nearest, precision_by_label_count
from kenthash.analysis.subject import Subject
from kenthash.analysis.topology import cosines, find_groups, nearest_proxy_cosine, read_groups, topologies
from kenthash.data.check import average_cooccurring_labels
from kenthash.studies.outcome import mean
from kenthash.studies.sheet import Sheet, Value
from kenthash.training.checkpoint import FILE as CHECKPOINT
from kenthash.training.record import has_record
from kenthash.training.run_folder import Run


def analyse(path: Path, data: Path | None = None, groups: Path | None = None, device: str = "auto") -> dict[str, Any]:
    """All measures as plain values: NaN is None, classes and groups by name. Missing parts have no key; `left_out` has
    one line for each missing part: why it is missing, and how to get it."""
    run = Run.open(path, device)
    if data is not None:
        run = replace(run, recipe=replace(run.recipe, data=str(data)))
    subject = Subject(run, run.source())
    dataset = subject.source.dataset
    ap, hard = precision_by_label_count([subject])
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
        f"precision_at_{NEAREST}": precision_at_nearest(subject),
    }
    left_out = []
    if reason := _no_proxies(subject):
        left_out.append(f"GTSD, cosines of proxies and topology are left out: {reason}")
    else:
        result |= _of_proxies(subject, find_groups(Path(run.recipe.data), groups))
        if "gtsd_by_labels" not in result:
            left_out.append("GTSD is left out: of the items that were not trained on, none has 3 to 8 labels")
        if "groups" not in result:
            left_out.append(
                f"topology is left out: {run.recipe.data} has no groups.json: give --groups FILE, JSON of group name → "
                "class names"
            )
    if has_record(path):
        moves, path_of = dynamics([subject]), kinematics([subject])
        result["flip_rate_by_epoch"] = {str(t + 2): value for t, value in enumerate(moves.all_flips.tolist())}
        result["chaos"] = {"index": mean(path_of.index)} | {part: mean(path_of.parts[part]) for part in PARTS}
        by_class |= {"flip_rate": moves.second_half(moves.flips), "chaos": path_of.index}
    else:
        left_out.append(
            "flip rate and Chaos Index are left out: the run has no record of its epochs: `kenthash reproduce` makes "
            "recorded runs of dsph and kdph"
        )
    result["classes"] = {
        name: {measure: float(values[c]) for measure, values in by_class.items()}
        for c, name in enumerate(dataset.classes)
    }
    plain: dict[str, Any] = _plain(result | {"left_out": left_out})
    return plain


def _no_proxies(subject: Subject) -> str:
    """Why the run's proxies cannot be measured; nothing where they can."""
    run = subject.run
    if not (run.path / "checkpoint" / CHECKPOINT).is_file():
        again = f"kenthash train --recipe {run.path / 'recipe.yaml'} --out NEW"
        return f"the run's checkpoint, which holds its proxies, is gone: train it again by `{again}`"
    if subject.proxies is None:
        return f"{subject.title} has no proxies: only its codes can be measured"
    return ""


def _of_proxies(subject: Subject, groups: Path | None) -> dict[str, Any]:
    """GTSD where items have labels enough, cosines, and topology where the classes have groups."""
    cosine, own = divergences([subject])
    gaps = {
        str(n): {"items": d.items, "gtsd": d.gtsd, "maximum": d.maximum, "gtsd_own_score": own[n].gtsd}
        for n, d in cosine.items()
    }
    off_diagonal = cosines(subject.means)[~np.eye(len(subject.means), dtype=bool)]
    nearest = mean(nearest_proxy_cosine(subject.means))
    result: dict[str, Any] = {"gtsd_by_labels": gaps} if gaps else {}
    result["proxies"] = {"mean_cosine": mean(off_diagonal), "nearest_cosine": nearest}
    if groups is not None:
        result["groups"] = {
            name: {"classes": g.classes, "intra": g.intra, "inter": g.inter, "separation": g.separation}
            for name, g in topologies([subject], read_groups(groups, subject.source.dataset.classes)).items()
        }
    return result


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
    caption = "By class. ACL: mean number of other labels; flip rate: mean per epoch in the second half of training."
    sheets.append(Sheet(["Class", *measures], rows, caption, digits=3))
    lines = [sheet.markdown() for sheet in sheets]
    if proxies := result.get("proxies"):
        lines.append(
            "cosine of two class directions: {mean_cosine:.3f}, to the nearest: {nearest_cosine:.3f}".format(**proxies)
        )
    if chaos := result.get("chaos"):
        lines.append("Chaos Index, mean over classes: " + ", ".join(f"{name} {v:.3f}" for name, v in chaos.items()))
    return "\n".join([*lines, *result["left_out"]])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, float):
        return None if np.isnan(value) else round(value, 6)
    return value
