"""Semantic topology: are the proxies of related classes together, and those of unrelated ones apart?"""

import numpy as np
from matplotlib.figure import Figure

from kenthash.analysis.topology import ByGroup, GroupTopology, nearest_proxy_cosine, topologies
from kenthash.studies.drawing import BASELINE, MARKERS, METHOD, QUIET, canvas, legend_below, tidy
from kenthash.studies.outcome import LeftOut, Outcome, Plot, mean, signed
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import PAIR, TITLES, Study


def topology(study: Study) -> Outcome:
    if study.groups is None:
        raise LeftOut(f"groups of classes are needed: give --groups FILE, as {study.data} has no groups.json")
    if all(len(members) == 1 for members in study.groups.values()):
        raise LeftOut("a group of two classes or more is needed, and every group has one")
    before, after = (topologies(study.subjects[name], study.groups) for name in PAIR)
    head = ["Group", "Classes"]
    head += [f"{what} {t}" for what in ("Intra", "Inter", "Separation") for t in TITLES]
    rows: list[list[Value]] = [[name, before[name].classes, *_figures(before[name], after[name])] for name in before]
    overall = [_mean(before), _mean(after)]
    rows.append(["mean", sum(g.classes for g in before.values()), *_figures(*overall)])
    caption = (
        "Mean cosine of class directions after the last epoch: within a group, and to the classes of other groups. "
        f"Separation is their difference; a group of one class has no pair within. {study.basis}"
    )
    known = [name for name in before if not np.isnan(before[name].intra)]
    wider = [name for name in known if after[name].separation > before[name].separation]
    nearest = [mean(v for s in study.subjects[n] for v in nearest_proxy_cosine(s.means)) for n in PAIR]
    gain = overall[1].separation - overall[0].separation
    seen = [
        (
            f"Mean separation: {overall[0].separation:.3f} ({TITLES[0]}) and {overall[1].separation:.3f} "
            f"({TITLES[1]}), a change of {signed(gain, 3)}, of which {signed(overall[1].intra - overall[0].intra, 3)} "
            f"is within groups and {signed(overall[0].inter - overall[1].inter, 3)} between them."
        ),
        f"{TITLES[1]} separates {len(wider)} of {len(known)} groups more{': ' + ', '.join(wider) if wider else ''}.",
        (
            f"Mean cosine of a class to its nearest other class: {nearest[0]:.3f} ({TITLES[0]}), {nearest[1]:.3f} "
            f"({TITLES[1]})."
        ),
    ]
    drawn = (
        f"(a) Each group's way from {TITLES[0]} to {TITLES[1]}; the ideal is the upper left corner. (b) Separation. "
        f"(c) Change of each part, {TITLES[1]} minus {TITLES[0]}."
    )
    return Outcome(
        target="topology",
        title="Semantic topology of the proxies",
        measured="Classes are put into groups of related ones, and the cosines of their directions are averaged within "
        "each group and between groups. Separation, the difference of the two, is high where related classes lie "
        "together and unrelated ones apart.",
        paper="On MS COCO's 12 super-groups nearly every group moves to the ideal corner (high within, low between) "
        "from the baseline to KDPH, mainly by less similarity between groups.",
        seen=seen,
        sheets=[Sheet(head, rows, caption, digits=3)],
        plots=[Plot("figure", _draw(before, after), drawn)],
    )


def _figures(a: GroupTopology, b: GroupTopology) -> list[Value]:
    return [a.intra, b.intra, a.inter, b.inter, a.separation, b.separation]


def _mean(groups: ByGroup) -> GroupTopology:
    """Over the groups that have pairs within, so that the separation is the mean of theirs."""
    known = [g for g in groups.values() if not np.isnan(g.intra)]
    return GroupTopology(len(known), mean(g.intra for g in known), mean(g.inter for g in known))


def _spaced(heights: dict[str, float], gap: float = 0.045) -> dict[str, float]:
    """Heights for labels, in the order of their points and at least `gap` apart."""
    spaced: dict[str, float] = {}
    lowest = -np.inf
    for name in sorted(heights, key=heights.__getitem__):
        lowest = spaced[name] = max(heights[name], lowest + gap)
    return spaced


def _draw(before: ByGroup, after: ByGroup) -> Figure:
    names = [name for name in before if not np.isnan(before[name].intra)]
    figure = canvas(10.4, 7.4)
    above, below = list(figure.subfigures(2, 1, squeeze=False, height_ratios=(1.7, 1)).flat)
    left, right = above.subplots(1, 2, width_ratios=(1.35, 1))
    # Names stand where the points lie further apart.
    spread = [np.ptp([g.inter for g in by.values()]) + np.ptp([by[n].intra for n in names]) for by in (before, after)]
    named = after if spread[1] > spread[0] else before
    heights = _spaced({name: named[name].intra for name in names})
    edge = min(named[name].inter for name in names) - 0.06
    for name in names:
        a, b, near = before[name], after[name], named[name]
        arrow = {"arrowstyle": "->", "color": QUIET, "shrinkA": 4, "shrinkB": 5}
        left.annotate("", (b.inter, b.intra), (a.inter, a.intra), arrowprops=arrow)
        line = {"arrowstyle": "-", "color": QUIET, "linewidth": 0.6, "shrinkB": 4}
        place = near.inter, near.intra
        left.annotate(name, place, (edge, heights[name]), size=8, ha="right", va="center", arrowprops=line)
    for by, colour, title in ((before, BASELINE, TITLES[0]), (after, METHOD, TITLES[1])):
        inter, intra = [by[n].inter for n in names], [by[n].intra for n in names]
        left.scatter(inter, intra, color=colour, marker=MARKERS[colour], s=60, zorder=3, label=title)
    tidy(left, "both").set(
        title="(a) within and between", xlabel="inter-group similarity", ylabel="intra-group similarity"
    )
    left.margins(0.05, 0.1)
    left.set_xlim(left=edge - 0.22 * (left.get_xlim()[1] - edge))  # space for the names
    for i, (by, colour) in enumerate(((before, BASELINE), (after, METHOD))):
        places = np.arange(len(names)) + (i - 0.5) * 0.4
        right.barh(places, [by[n].separation for n in names], 0.38, color=colour)
    right.set_yticks(range(len(names)), names)
    right.invert_yaxis()
    tidy(right, "x").set(title="(b) separation")
    parts = ("intra", "inter", "separation")
    change = np.array([[getattr(after[n], p) - getattr(before[n], p) for n in names] for p in parts])
    axes = below.add_subplot()
    limit = max(float(np.abs(change).max()), 1e-6)
    image = axes.imshow(change, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    for (i, j), value in np.ndenumerate(change):
        colour = "white" if abs(value) > 0.6 * limit else "#222222"
        axes.annotate(signed(float(value), 2), (j, i), ha="center", va="center", size=8, color=colour)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_yticks(range(3), ["Δ intra", "Δ inter", "Δ separation"])
    axes.set_title("(c) change")
    axes.spines[:].set_visible(False)
    below.colorbar(image, ax=axes, pad=0.01)
    legend_below(figure, left)
    return figure
