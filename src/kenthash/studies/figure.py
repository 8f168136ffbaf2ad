"""mAP by code length, a line a method, a panel a direction: the figure beside a comparison's table."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from kenthash.studies.drawing import canvas, tidy
from kenthash.studies.results import DIRECTIONS, Row

# Okabe & Ito's colours; the marker changes when they are used up, so that every row is its own.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D")


def draw(rows: Sequence[Row], bits: Sequence[int]) -> Figure:
    """Controls are grey."""
    figure = canvas(9.5, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (direction, title) in zip(panels, DIRECTIONS.items(), strict=True):
        for i, row in enumerate(rows):
            cells = [row.cells[direction, b] for b in bits]
            style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i // len(COLOURS) % len(MARKERS)]}
            if row.fidelity == "control":
                style = {"color": "#999999", "marker": MARKERS[i % len(MARKERS)], "linestyle": "--"}
            means, deviations = [c.mean for c in cells], [c.deviation for c in cells]
            axes.errorbar(bits, means, deviations, label=row.name, capsize=2, markersize=4, **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(bits, [str(b) for b in bits])
        tidy(axes, "both").set(xlabel="bits", title=title)
    panels[0].set_ylabel("mAP")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize="small")
    return figure
