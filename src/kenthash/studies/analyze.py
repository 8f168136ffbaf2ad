"""`kenthash analyze`: the paper's measures of one finished run.

Of every run: how well its codes find own pairs, and, where there are labels, classes and hardest labels. Of a run with
proxies: GTSD and topology after the last epoch. Of a recorded run (`kenthash reproduce` makes them): flip rate and
Chaos Index.
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
from kenthash.codes import pack
from kenthash.data.check import average_cooccurring_labels
from kenthash.evaluation import instance_scores
from kenthash.studies.outcome import mean
from kenthash.studies.results import DIRECTIONS
from kenthash.studies.sheet import Sheet, Value
from kenthash.training.checkpoint import FILE as CHECKPOINT
from kenthash.training.proxy_record import has_record
from kenthash.training.run_folder import Run
from kenthash.training.supervision import label_fault, measured


def analyse(path: Path, data: Path | None = None, groups: Path | None = None, device: str = "auto") -> dict[str, Any]:
    """All measures as plain values: NaN is None, classes and groups by name. Missing parts have no key; `left_out` has
    one line for each missing part: why it is missing, and how to get it."""
    run = Run.open(path, device)
    if data is not None:
        run = replace(run, recipe=replace(run.recipe, data=str(data)))
    subject = Subject(run, run.source())
    dataset = subject.source.dataset
    result: dict[str, Any] = {
        "method": run.recipe.method,
        "bits": run.recipe.bits,
        "seed": run.recipe.seed,
        "protocol": run.recipe.protocol,
        "ties": "expected",
        "split": run.split.digest(),
        "instance_recall": _own_pairs(subject),
    }
    by_class: dict[str, Any] = {}
    left_out = []
    fault = label_fault(dataset.labels, subject.source.captions, run.split)
    if fault:
        left_out.append(f"mAP, and precision by labels and by class, are left out: {fault}")
    else:
        ap, hard = precision_by_label_count([subject])
        result["map_by_labels"] = {str(n): value for n, (value, _) in ap.items()}
        result["subordinate_precision_by_labels"] = {str(n): value for n, (value, _) in hard.items()}
        by_class["acl"] = average_cooccurring_labels(dataset.labels)
        by_class[f"precision_at_{NEAREST}"] = precision_at_nearest(subject)
    if reason := fault or _no_proxies(subject):
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
    if by_class:
        result["classes"] = {
            name: {measure: float(values[c]) for measure, values in by_class.items()}
            for c, name in enumerate(dataset.classes)
        }
    plain: dict[str, Any] = _plain(result | {"left_out": left_out})
    return plain


def _own_pairs(subject: Subject) -> dict[str, dict[str, float]]:
    """Recall of own pairs by direction and k, among the query items alone, as `evaluate` has it."""
    run, source = subject.run, subject.source
    rows, _ = measured(subject.labels, source.captions, run.split)
    outputs, own = run.outputs(source, rows), np.arange(len(rows))
    image, text = pack(outputs.image), pack(outputs.text)
    return {
        direction: {str(k): value for k, value in instance_scores(*codes, own, own).recall.items()}
        for direction, codes in {"i2t": (image, text), "t2i": (text, image)}.items()
    }


def _no_proxies(subject: Subject) -> str:
    """Why the run's proxies cannot be measured; nothing where they can."""
    run = subject.run
    if not (run.path / "checkpoint" / CHECKPOINT).is_file():
        command = f"kenthash train --recipe {run.path / 'recipe.yaml'} --out NEW"
        return f"the run's checkpoint, which holds its proxies, is gone: train it again by `{command}`"
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
    own = result["instance_recall"]
    rows: list[list[Value]] = [[DIRECTIONS[d], *(f"{100 * value:.1f}" for value in own[d].values())] for d in own]
    head = ["Own pairs", *(f"R@{k}" for k in own["i2t"])]
    sheets = [Sheet(head, rows, f"In per cent, among the query items alone. {basis}")]
    if "map_by_labels" in result:
        ap, hard = result["map_by_labels"], result["subordinate_precision_by_labels"]
        gaps = result.get("gtsd_by_labels", {})
        rows = [[n, ap.get(n), hard[n], gaps.get(n, {}).get("gtsd"), gaps.get(n, {}).get("maximum")] for n in hard]
        head = ["Labels", "mAP", "Subordinate P@50", "GTSD", "Max. score"]
        caption = f"By number of labels, both directions; 8 is 8 or more for mAP and precision. {basis}"
        sheets.append(Sheet(head, rows, caption, digits=3))
    if groups := result.get("groups"):
        rows = [[name, g["classes"], g["intra"], g["inter"], g["separation"]] for name, g in groups.items()]
        caption = "Cosines of class directions after the last epoch, within a group and to other groups."
        sheets.append(Sheet(["Group", "Classes", "Intra", "Inter", "Separation"], rows, caption, digits=3))
    if classes := result.get("classes"):
        measures = list(next(iter(classes.values())))
        rows = [[name, *values.values()] for name, values in classes.items()]
        caption = (
            "By class. ACL: mean number of other labels; flip rate: mean per epoch in the second half of training."
        )
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
