"""The Chaos Index of proxies against the precision of their classes."""

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from kenthash.analysis.cooccurrence import Classes
from kenthash.analysis.oscillation import PARTS, Kinematics, kinematics
from kenthash.data.check import average_cooccurring_labels
from kenthash.evaluation.measures import Scores
from kenthash.studies.drawing import BASELINE, MARKERS, METHOD, canvas, legend_below, tidy, twin
from kenthash.studies.outcome import Outcome, Plot, mean, signed
from kenthash.studies.sheet import MISSING, Sheet, Value
from kenthash.studies.study import PAIR, Study

TITLES = {
    "efficiency": "path efficiency",
    "consistency": "directional consistency",
    "entropy": "movement entropy",
    "autocorrelation": "autocorrelation",
}


def chaos_index(study: Study) -> Outcome:
    both = [kinematics(study.subjects[name]) for name in PAIR]
    acl = average_cooccurring_labels(study.labels)
    head = ["Class", "Group", "ACL", "Method", "Chaos Index", *(TITLES[part].capitalize() for part in PARTS), "P@50"]
    blocks: list[tuple[str, str, Classes]] = []
    for side, classes in study.sides.items():
        blocks += [(study.classes[c], side, np.array([c])) for c in classes]
        blocks.append((f"mean of {len(classes)}", side, classes))
    blocks.append(("mean of all classes", "", np.arange(len(acl))))
    rows: list[list[Value]] = [
        [name, side, mean(acl[classes]), d.title, *_figures(d, classes)] for name, side, classes in blocks for d in both
    ]
    caption = (
        "Chaos Index of each class direction's path from its start through every epoch, its four parts, and P@50: mean "
        "over the queries that carry the class of the share of their first 50 items that carry it, both directions. "
        f"{study.basis}"
    )
    return Outcome(
        target="chaos",
        title="Chaos Index and precision",
        measured="The Chaos Index joins four properties of a proxy's path through training: how straight it is, "
        "whether steps keep their direction, how irregular their lengths are, and how far one step predicts the next. "
        "It is 0 for a straight even path and 1 for one without order, and is set against the class's precision@50.",
        paper="High co-occurrence classes (ACL about 4.1) have a high index and low precision under the baseline and a "
        "low index and high precision under KDPH; with ACL about 1.1 the two are alike.",
        seen=_seen(both, study.sides, acl),
        sheets=[Sheet(head, rows, caption, digits=3)],
        plots=[
            Plot(
                f"figure-{side}",
                _draw(study, both, classes),
                f"{side.capitalize()} co-occurrence classes (mean ACL {mean(acl[classes]):.1f}): Chaos Index as bars, "
                "precision@50 as points; below, the four parts of the index.",
            )
            for side, classes in study.sides.items()
        ],
    )


def _figures(d: Kinematics, classes: Classes) -> list[Value]:
    parts = [mean(d.parts[part][classes]) for part in PARTS]
    return [mean(d.index[classes]), *parts, mean(d.precision[classes])]


def _seen(both: list[Kinematics], sides: dict[str, Classes], acl: Scores) -> list[str]:
    lines = []
    for side, classes in sides.items():
        index = " and ".join(f"{mean(d.index[classes]):.3f} ({d.title})" for d in both)
        precision = " and ".join(f"{mean(d.precision[classes]):.3f} ({d.title})" for d in both)
        lines.append(f"{side.capitalize()} co-occurrence: Chaos Index {index}; precision@50 {precision}.")
    for d in both:
        known = ~np.isnan(d.precision) & ~np.isnan(acl)
        if known.sum() > 2:
            precision, labels = (_correlation(d.index[known], other[known]) for other in (d.precision, acl))
            lines.append(
                f"{d.title}, over all {known.sum()} classes: rank correlation of the index with precision@50 "
                f"{precision}, with ACL {labels}."
            )
    return lines


def _correlation(a: Scores, b: Scores) -> str:
    """Spearman's; values that are all the same have none."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return MISSING
    test = spearmanr(a, b)
    return f"{signed(test.statistic, 2)} (p = {test.pvalue:.2g})"


def _draw(study: Study, both: list[Kinematics], classes: Classes) -> Figure:
    figure = canvas(9.6, 6.0)
    above, below = list(figure.subfigures(2, 1, squeeze=False, height_ratios=(1.35, 1)).flat)
    axes = tidy(above.add_subplot())
    right = twin(axes)
    names = [study.classes[c] for c in classes]
    for i, (d, colour) in enumerate(zip(both, (BASELINE, METHOD), strict=True)):
        places = np.arange(len(classes)) + (i - 0.5) * 0.34
        axes.bar(places, d.index[classes], 0.32, color=colour, alpha=0.75, label=f"{d.title} Chaos Index")
        right.plot(
            range(len(classes)), d.precision[classes], color=colour, marker=MARKERS[colour], markersize=9,
            linestyle=":", markeredgecolor="white", label=f"{d.title} precision@50",
        )  # fmt: skip
    axes.set_xticks(range(len(classes)), names)
    axes.set(ylabel="Chaos Index", ylim=(0, 1))
    right.set(ylabel="precision@50", ylim=(0, 1))
    for axes_below, part in zip(below.subplots(1, 4), PARTS, strict=True):
        for i, (d, colour) in enumerate(zip(both, (BASELINE, METHOD), strict=True)):
            places = np.arange(len(classes)) + (i - 0.5) * 0.4
            axes_below.barh(places, d.parts[part][classes], 0.38, color=colour, alpha=0.75)
        axes_below.axvline(0, color="#555555", linewidth=0.8)
        axes_below.set_yticks(range(len(classes)), names if part == PARTS[0] else [""] * len(classes), size=8)
        axes_below.invert_yaxis()
        tidy(axes_below, "x").set_title(TITLES[part], size=10)
    legend_below(figure, axes, right, ncols=4)
    return figure
