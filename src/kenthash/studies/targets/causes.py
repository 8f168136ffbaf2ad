"""What each part of KDPH is worth, from the print to our KDPH and on to KAPH: one change at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kenthash.files import read_json
from kenthash.methods import METHODS
from kenthash.studies.drawing import MANY, canvas, legend_below, tidy
from kenthash.studies.grid import Job, run_all
from kenthash.studies.outcome import Outcome, Plot, signed
from kenthash.studies.results import DIRECTIONS, Cells, both_directions, cells_of
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import Study
from kenthash.training.recipe import find_recipe, read_recipe


@dataclass(frozen=True)
class Variant:
    name: str  # of its runs
    title: str
    layer: dict[str, Any]
    against: str = ""  # the variant that it differs from in one thing


def variants() -> list[Variant]:
    printed = read_recipe(find_recipe("kdph-printed"))
    steps: list[dict[str, Any]] = [  # from the print to KDPH
        {"settings": {"uniform": "mean"}},
        {"settings": {"irrelevance": "threshold"}},
        {"proxy_optimizer": METHODS["kdph"].recipe["proxy_optimizer"]},
    ]
    mean, threshold, rate = (_over(printed, *steps[: i + 1]) for i in range(len(steps)))
    wide = METHODS["kaph"].recipe["head"]
    plain = {"kind": "tanh", "hidden": 0, "dropout": 0.2, "slope": 1.0}

    def kdph(**settings: Any) -> dict[str, Any]:
        return {"method": "kdph", "settings": settings}

    def kaph(**settings: Any) -> dict[str, Any]:
        return {"method": "kaph", "settings": settings}

    constant = {**kdph(), "proxy_optimizer": {"decay": "constant"}}
    authors = read_recipe(find_recipe("kdph-authors"))
    hinge = {**METHODS["kaph"].recipe, **kdph(epsilon=0.0, zeta=0.0, eta=0.0)}

    return [
        Variant("kdph-authors", "KDPH after the authors' code", authors),
        Variant("kdph-printed", "KDPH as printed", printed),
        Variant("kdph-printed-mean", "with the mean for the trace", mean, "kdph-printed"),
        Variant("kdph-printed-threshold", "and a threshold in irrelevance", threshold, "kdph-printed-mean"),
        Variant("kdph-printed-rate", "and the proxies' own rate", rate, "kdph-printed-threshold"),
        Variant("kdph", "and first κ, first β and margin: our KDPH", kdph(), "kdph-printed-rate"),
        Variant("kdph-constant", "without decay of the proxies' rate", constant, "kdph"),
        Variant("kdph-multi-label", "irrelevance of multi-label pairs only", kdph(pairs="multi-label"), "kdph"),
        Variant("kdph-no-proxies", "without the proxy term", kdph(proxies=0.0), "kdph"),
        Variant("kdph-no-irrelevance", "without irrelevance", kdph(epsilon=0.0), "kdph"),
        Variant("kdph-no-alignment", "without InfoNCE", kdph(zeta=0.0), "kdph"),
        Variant("kdph-no-uniform", "without the uniform term", kdph(eta=0.0), "kdph"),
        Variant("kdph-vmf", "without even powers (vMF)", kdph(proxy="vmf"), "kdph"),
        Variant("kdph-point", "with point proxies", kdph(proxy="point"), "kdph"),
        Variant("kdph-wide", "with KAPH's head", {**kdph(), "head": wide}, "kdph"),
        Variant("kdph-hinge", "Kent proxies by the hinge, nothing else", hinge, "kdph-wide"),
        Variant("kaph-proxies", "the same by softmax", kaph(ranking=0.0, proxies=1.0), "kdph-hinge"),
        Variant("kaph-no-proxies", "average precision, nothing else", kaph(proxies=0.0), "kaph-proxies"),
        Variant("kaph", "both: KAPH", kaph(), "kaph-no-proxies"),
        Variant("kaph-across", "without ranking within a modality", kaph(within=0.0), "kaph"),
        Variant("kaph-flat", "without the growing slope", {**kaph(), "head": {"slope": 1.0}}, "kaph"),
        Variant("kaph-plain", "with the field's head", {**kaph(), "head": plain}, "kaph"),
        Variant("kaph-vmf", "with vMF proxies", kaph(proxy="vmf"), "kaph"),
        Variant("kaph-point", "with point proxies", kaph(proxy="point"), "kaph"),
    ]


def _over(layer: dict[str, Any], *changes: dict[str, Any]) -> dict[str, Any]:
    """A recipe with sections changed in some of their values."""
    for change in changes:
        layer = {**layer, **{section: {**layer[section], **values} for section, values in change.items()}}
    return layer


def causes(study: Study) -> Outcome:
    """Every variant at the shortest and the longest length."""
    lengths = sorted({min(study.bits), max(study.bits)})
    tried = variants()
    jobs = {
        (v.name, b): [study.job(v.name, b, s, v.layer, record=v.name == "kdph") for s in range(study.seeds)]
        for v in tried
        for b in lengths
    }
    fields_way = {b: [_on_queries(study, b, seed) for seed in range(study.seeds)] for b in lengths}
    run_all([job for group in [*jobs.values(), *fields_way.values()] for job in group], "causes")
    cells = {v.name: cells_of({b: [job.out for job in jobs[v.name, b]] for b in lengths}) for v in tried}
    head = ["Variant", *(f"{b} bits {t}" for b in lengths for t in ("I → T", "T → I", "change", "real"))]
    table: list[list[Value]] = []
    for v in tried:
        line: list[Value] = [v.title]
        for b in lengths:
            line += [cells[v.name][d, b].mean for d in DIRECTIONS]
            line += [_change(v, cells, b), float(np.mean([cells[v.name][d, b].real_mean for d in DIRECTIONS]))]
        table.append(line)
    line = ["KDPH as printed, chosen on the queries"]
    for b in lengths:
        best = _best_epochs(fields_way[b])
        line += [*best, signed(sum(best) / 2 - both_directions(cells["kdph-printed"], b)), None]
    table.append(line)
    return Outcome(
        target="causes",
        title="What each part of KDPH is worth",
        measured="One thing is changed at a time, from KDPH as printed to KAPH. `change` is of the mean of both "
        "directions, against the variant that differs in that one thing; the hinge alone drops all other terms, and "
        "has KAPH's batch and rates. `real` is the same outputs before signing.",
        paper="The paper reports KDPH ahead of all baselines.",
        seen=[_sentence(v, tried, cells, lengths) for v in tried if v.against],
        sheets=[Sheet(head, table, f"mAP@ALL of signed codes. {study.basis_of_lengths}")],
        plots=[Plot("figure", _draw(tried, cells, lengths), "mAP of each variant, mean of both directions.")],
    )


def _on_queries(study: Study, bits: int, seed: int) -> Job:
    """KDPH as printed under the field's protocol, which trains on all of train and looks at the queries every epoch."""
    layer = {**read_recipe(find_recipe("kdph-printed")), "protocol": "paper"}
    return study.job("kdph-printed-on-queries", bits, seed, layer)


def _best_epochs(jobs: Sequence[Job]) -> list[float]:
    """The field's figures: the best epoch of each direction for itself, mean over seeds."""
    histories = [read_json(job.out / "history.json") for job in jobs]
    return [float(np.mean([max(record[d] for record in h) for h in histories])) for d in DIRECTIONS]


def _change(variant: Variant, cells: dict[str, Cells], bits: int) -> str:
    if not variant.against:
        return ""
    return signed(both_directions(cells[variant.name], bits) - both_directions(cells[variant.against], bits))


def _sentence(variant: Variant, tried: Sequence[Variant], cells: dict[str, Cells], lengths: Sequence[int]) -> str:
    (before,) = (v.title for v in tried if v.name == variant.against)
    changes = [f"{_change(variant, cells, b)} at {b} bits" for b in lengths]
    return f"{before} → {variant.title}: {', '.join(changes)}."


def _draw(tried: Sequence[Variant], cells: dict[str, Cells], lengths: Sequence[int]) -> Figure:
    figure = canvas(8.4, 6.6)
    axes = tidy(figure.add_subplot(), "x")
    height = 0.8 / len(lengths)
    for i, (bits, colour) in enumerate(zip(lengths, MANY, strict=False)):
        places = [y + (i - (len(lengths) - 1) / 2) * height for y in range(len(tried))]
        values = [both_directions(cells[v.name], bits) for v in tried]
        bars = axes.barh(places, values, height * 0.94, color=colour, label=f"{bits} bits")
        axes.bar_label(bars, [f"{value:.3f}" for value in values], size=8, padding=2)
    axes.set_yticks(range(len(tried)), [v.title for v in tried])
    axes.invert_yaxis()
    axes.set_xlabel("mAP, mean of both directions")
    legend_below(figure, axes)
    return figure
