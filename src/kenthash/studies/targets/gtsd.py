"""Ground-truth score divergence by number of labels, and the maximum scores beside it."""

from matplotlib.figure import Figure

from kenthash.analysis.gtsd import ByCount, divergences
from kenthash.studies.drawing import BASELINE, MARKERS, METHOD, QUIET, canvas, legend_below, tidy
from kenthash.studies.outcome import LeftOut, Outcome, Plot, signed
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import PAIR, TITLES, Study


def gtsd(study: Study) -> Outcome:
    (cosine_0, own_0), (cosine_1, own_1) = (divergences(study.subjects[name]) for name in PAIR)
    if not cosine_0:
        raise LeftOut(f"{study.data}: no item that was not trained on has 3 to 8 labels, so it has no GTSD to show")
    head = ["Labels", "Items", *(f"GTSD {t}" for t in TITLES), "Reduction %", *(f"Max. score {t}" for t in TITLES)]
    head += [f"GTSD own score {t}" for t in TITLES]
    reduction = {n: 100 * (1 - cosine_1[n].gtsd / cosine_0[n].gtsd) for n in cosine_0 if cosine_0[n].gtsd > 0}
    rows: list[list[Value]] = [
        [
            n, cosine_0[n].items // (2 * study.seeds), cosine_0[n].gtsd, cosine_1[n].gtsd,
            _one_digit(reduction.get(n)), cosine_0[n].maximum, cosine_1[n].maximum, own_0[n].gtsd, own_1[n].gtsd,
        ]
        for n in cosine_0
    ]  # fmt: skip
    caption = (
        "GTSD and maximum scores from the cosine to the class directions, after the last epoch, over items that were "
        "not trained on, images and texts. Own score: GTSD of each method's own score in its standard deviations. "
        f"Items: mean per seed. {study.basis}"
    )
    counts = sorted(cosine_0)
    first, last = counts[0], counts[-1]
    seen = [
        (
            f"From {first} to {last} labels GTSD goes from {cosine_0[first].gtsd:.3f} to {cosine_0[last].gtsd:.3f} "
            f"under {TITLES[0]} and from {cosine_1[first].gtsd:.3f} to {cosine_1[last].gtsd:.3f} under {TITLES[1]}."
        ),
        (
            f"{TITLES[1]} changes it by {signed(-reduction.get(first, float('nan')), 1)} % at {first} labels and by "
            f"{signed(-reduction.get(last, float('nan')), 1)} % at {last}."
        ),
        (
            f"Maximum scores at {last} labels: {cosine_0[last].maximum:.3f} ({TITLES[0]}) and "
            f"{cosine_1[last].maximum:.3f} ({TITLES[1]})."
        ),
        (
            f"By each method's own score, in its deviations, GTSD at {last} labels is {own_0[last].gtsd:.2f} "
            f"({TITLES[0]}) and {own_1[last].gtsd:.2f} ({TITLES[1]})."
        ),
    ]
    drawn = "(a) GTSD by number of labels. (b) Maximum scores. (c) Reduction of GTSD; below zero it is wider."
    plot = Plot("figure", _draw(cosine_0, cosine_1, reduction), drawn)
    return Outcome(
        target="gtsd",
        title="Ground-truth score divergence",
        measured="For an item with several labels, GTSD is the gap between its best and its worst scored true label. A "
        "wide gap means that some of its classes have drawn it to themselves and left the others behind.",
        paper="The baseline's gap widens with the number of labels and its maximum scores exceed 0.9, against about "
        "0.6 of KDPH, which lowers the gap by 14.8 % at eight labels.",
        seen=seen,
        sheets=[Sheet(head, rows, caption, digits=3)],
        plots=[plot],
    )


def _one_digit(value: float | None) -> Value:
    return None if value is None else f"{value:.1f}".replace("-", "−")


def _draw(baseline: ByCount, method: ByCount, reduction: dict[int, float]) -> Figure:
    figure = canvas(9.6, 3.5)
    panels = figure.subplots(1, 3)
    for by, colour, title in ((baseline, BASELINE, TITLES[0]), (method, METHOD, TITLES[1])):
        style = {"color": colour, "marker": MARKERS[colour], "markersize": 7, "label": title}
        panels[0].plot(list(by), [d.gtsd for d in by.values()], **style)
        panels[1].plot(list(by), [d.maximum for d in by.values()], **style)
    bars = panels[2].bar(
        list(reduction), list(reduction.values()), color=[METHOD if r > 0 else BASELINE for r in reduction.values()]
    )
    panels[2].bar_label(bars, [f"{r:.1f}" for r in reduction.values()], size=8, padding=2)
    panels[2].axhline(0, color=QUIET, linewidth=1)
    panels[2].margins(y=0.15)
    names = ("(a) divergence", "(b) maximum score", "(c) reduction of divergence")
    for axes, name, unit in zip(panels, names, ("GTSD", "score of the best label", "%"), strict=True):
        tidy(axes).set(title=name, xlabel="labels of the item", ylabel=unit)
        axes.set_xticks(list(baseline))
    panels[0].set_ylim(bottom=0)
    legend_below(figure, panels[0])
    return figure
