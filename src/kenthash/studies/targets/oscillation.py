"""Chaotic proxy oscillation: flip rate and per-class precision by epoch, for classes with many and few companions."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kenthash.analysis.cooccurrence import Classes
from kenthash.analysis.oscillation import Dynamics, dynamics
from kenthash.data.check import average_cooccurring_labels
from kenthash.studies.drawing import BASELINE, MARKERS, METHOD, canvas, legend_below, tidy
from kenthash.studies.outcome import Outcome, Plot, mean, percent
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import PAIR, Study


def oscillation(study: Study) -> Outcome:
    both = [dynamics(study.subjects[name]) for name in PAIR]
    acl = average_cooccurring_labels(study.labels)
    sides = study.sides
    head = ["Class", "Group", "ACL"]
    head += [f"{what} {d.title}" for what in ("Flips %", "AP", "AP change") for d in both]
    rows: list[list[Value]] = []
    for side, classes in sides.items():
        rows += [[study.classes[c], side, float(acl[c]), *_figures(both, np.array([c]))] for c in classes]
        rows.append([f"mean of {len(classes)}", side, mean(acl[classes]), *_figures(both, classes)])
    everything = np.arange(len(study.classes))
    rows.append(["mean of all classes", "", mean(acl), *_figures(both, everything)])
    caption = (
        "Flips: share of samples that change their nearest proxy from one epoch to the next, mean over the second half "
        "of training. AP: average precision of the class after the last epoch. AP change: its mean step from epoch to "
        f"epoch in the second half. {study.basis}"
    )
    plots = [
        Plot("figure", _overview(both, sides), "Flip rate and precision by epoch, mean over the classes of a group.")
    ]
    for side, classes in sides.items():
        text = f"The {side} co-occurrence classes one by one: flip rate above, average precision below."
        plots.append(Plot(f"figure-{side}", _by_class(study, both, classes), text))
    return Outcome(
        target="oscillation",
        title="Chaotic proxy oscillation",
        measured="After every epoch each training sample is assigned to its nearest proxy, and the flip rate is the "
        "share of samples that change it. Beside it stands the average precision of the class after each epoch, for "
        f"the {len(sides['high'])} classes with most and the {len(sides['low'])} with fewest co-occurring labels.",
        paper="The baseline's flip rate stays at 5 to 20 % in high co-occurrence classes and KDPH's below 1 %; in low "
        "co-occurrence classes both are stable.",
        seen=_seen(both, sides),
        sheets=[Sheet(head, rows, caption, digits=3)],
        plots=plots,
    )


def _figures(both: list[Dynamics], classes: Classes) -> list[Value]:
    flips: list[Value] = [100 * mean(d.second_half(d.flips)[classes]) for d in both]
    precision: list[Value] = [mean(d.precision[classes, -1]) for d in both]
    return flips + precision + [mean(d.precision_steps[classes]) for d in both]


def _seen(both: list[Dynamics], sides: dict[str, Classes]) -> list[str]:
    lines = []
    for side, classes in sides.items():
        flips = " and ".join(f"{percent(mean(d.second_half(d.flips)[classes]))} ({d.title})" for d in both)
        end = " and ".join(f"{percent(mean(d.flips[classes, -1]))} ({d.title})" for d in both)
        steps = " and ".join(f"{mean(d.precision_steps[classes]):.4f} ({d.title})" for d in both)
        lines.append(
            f"{side.capitalize()} co-occurrence: {flips} of samples flip per epoch in the second half of training, "
            f"{end} in the last epoch; precision moves by {steps} per epoch."
        )
    overall = " and ".join(f"{percent(float(d.second_half(d.all_flips)))} ({d.title})" for d in both)
    return [*lines, f"Over all samples {overall} flip per epoch in the second half."]


def _overview(both: list[Dynamics], sides: dict[str, Classes]) -> Figure:
    figure = canvas(7.6, 5.2)
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for column, (side, classes) in enumerate(sides.items()):
        for d, colour in zip(both, (BASELINE, METHOD), strict=True):
            _curves(panels[:, column], d, classes, colour)
        panels[0, column].set_title(f"({'ab'[column]}) {side} co-occurrence classes")
        panels[1, column].set_xlabel("epoch")
    panels[0, 0].set(ylabel="flip rate, %", ylim=(0, None))
    panels[1, 0].set_ylabel("average precision")
    legend_below(figure, panels[0, 0])
    return figure


def _by_class(study: Study, both: list[Dynamics], classes: Classes) -> Figure:
    figure = canvas(1.5 * len(classes) + 0.8, 4.0)
    panels = figure.subplots(2, len(classes), sharex=True, sharey="row", squeeze=False)
    for column, c in enumerate(classes):
        for d, colour in zip(both, (BASELINE, METHOD), strict=True):
            _curves(panels[:, column], d, np.array([c]), colour)
        panels[0, column].set_title(study.classes[c], size=10)
        panels[1, column].set_xlabel("epoch")
    panels[0, 0].set(ylabel="flip rate, %", ylim=(0, None))
    panels[1, 0].set_ylabel("average precision")
    legend_below(figure, panels[0, 0])
    return figure


def _curves(column: NDArray[np.object_], d: Dynamics, classes: Classes, colour: str) -> None:
    style: dict[str, Any] = {
        "color": colour,
        "marker": MARKERS[colour],
        "markersize": 4,
        "linewidth": 1.6,
        "label": d.title,
    }
    flips = [100 * mean(d.flips[classes, t]) for t in range(d.flips.shape[1])]
    precision = [mean(d.precision[classes, t]) for t in range(d.precision.shape[1])]
    tidy(column[0]).plot(range(2, len(flips) + 2), flips, **style)
    tidy(column[1]).plot(range(1, len(precision) + 1), precision, **style)
