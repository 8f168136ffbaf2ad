"""Proxy collapse in codes: mAP by number of labels, and the precision of an item's hardest label."""

import numpy as np
from matplotlib.figure import Figure

from kenthash.analysis.precision import MOST, ByCount, precision_by_label_count
from kenthash.studies.drawing import BASELINE, METHOD, canvas, legend_below, tidy
from kenthash.studies.outcome import Outcome, Plot, signed
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import PAIR, TITLES, Study


def collapse(study: Study) -> Outcome:
    (ap_0, hard_0), (ap_1, hard_1) = (precision_by_label_count(study.subjects[name]) for name in PAIR)
    head = ["Labels", "Queries", *(f"mAP {t}" for t in TITLES), *(f"Subordinate P@50 {t}" for t in TITLES), "Change %"]
    searches = 2 * study.seeds  # of every query: both directions at every seed
    rows: list[list[Value]] = [
        [
            _label(n),
            hard_0[n][1] // searches,
            ap_0[n][0],
            ap_1[n][0],
            hard_0[n][0],
            hard_1[n][0],
            signed(_change(hard_0, hard_1, n), 1),
        ]
        for n in sorted(hard_0)
        if n in ap_0
    ]
    caption = (
        "Subordinate P@50: share of a query's first 50 items that carry its rarest label. Change: of that precision, "
        f"{TITLES[1]} against {TITLES[0]}. Both directions. Queries: mean per seed. {study.basis}"
    )
    several = [n for n in hard_0 if n >= 2]
    seen = [
        f"Queries with one label: mAP {ap_0[1][0]:.4f} ({TITLES[0]}) and {ap_1[1][0]:.4f} ({TITLES[1]})."
        if 1 in ap_0 and 1 in ap_1
        else "No query has exactly one label."
    ]
    if several:
        ahead = [_label(n) for n in several if hard_1[n][0] > hard_0[n][0]]
        seen.append(
            f"{TITLES[1]} finds the subordinate label more precisely for {len(ahead)} of {len(several)} numbers of "
            f"labels from 2 on{': ' + ', '.join(ahead) if ahead else ''}."
        )
    if changes := {n: change for n in several if not np.isnan(change := _change(hard_0, hard_1, n))}:
        largest = max(changes, key=lambda n: abs(changes[n]))
        seen.append(
            f"The largest change is at {_label(largest)} labels: {hard_0[largest][0]:.4f} to "
            f"{hard_1[largest][0]:.4f}, {signed(changes[largest], 1)} %."
        )
    drawn = "(a) mAP by number of labels. (b) Precision@50 of the subordinate label."
    plot = Plot("figure", _draw((ap_0, ap_1), (hard_0, hard_1)), drawn)
    return Outcome(
        target="collapse",
        title="Proxy collapse and the hardest label",
        measured="Queries are grouped by how many labels they carry. For each group the mAP is given, and how often "
        "the first 50 found items carry the query's subordinate label, its rarest one, which a collapsed proxy loses "
        "first.",
        paper="The baseline degrades with the number of labels, and KDPH improves the subordinate label's precision by "
        "41.1 % at five labels; with a single label the baseline is ahead.",
        seen=seen,
        sheets=[Sheet(head, rows, caption)],
        plots=[plot],
    )


def _label(n: int) -> str:
    return f"{n} or more" if n == MOST else str(n)


def _change(before: ByCount, after: ByCount, n: int) -> float:
    return 100 * (after[n][0] / before[n][0] - 1) if before[n][0] > 0 else float("nan")


def _draw(ap: tuple[ByCount, ByCount], hard: tuple[ByCount, ByCount]) -> Figure:
    figure = canvas(6.4, 6.4)
    panels = figure.subplots(2, 1, sharex=True)
    names = ("(a) retrieval by number of labels", "(b) precision of the subordinate label")
    for axes, pair, name, unit in zip(panels, (ap, hard), names, ("mAP", "precision@50"), strict=True):
        for i, (by, colour, title) in enumerate(zip(pair, (BASELINE, METHOD), TITLES, strict=True)):
            counts = sorted(by)
            places = [n + (i - 0.5) * 0.38 for n in counts]
            axes.bar(places, [by[n][0] for n in counts], 0.36, color=colour, label=title)
        tidy(axes).set(title=name, ylabel=unit)
        axes.set_xticks(sorted(pair[0]), [f"≥{n}" if n == MOST else str(n) for n in sorted(pair[0])])
    panels[1].set_xlabel("labels of the query")
    legend_below(figure, panels[0])
    return figure
