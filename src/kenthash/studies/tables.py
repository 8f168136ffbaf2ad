"""The results of a comparison: in the layout of the paper's Table 1 as a sheet and as LaTeX, as CSV with one row per
figure, and as a drawing."""

import csv
import io
from collections.abc import Sequence

from matplotlib.figure import Figure

from kenthash.studies.drawing import canvas, tidy
from kenthash.studies.results import DIRECTIONS, Row
from kenthash.studies.sheet import Sheet, tex

HEAD = ("Task", "Method", "Reference", "Fidelity")
TASKS = {"i2t": "I2T", "t2i": "T2I"}

# Okabe & Ito's colours; the marker changes when they are used up, so that every row is its own.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D")

Winners = dict[tuple[str, int], str]  # the name of the row that is bold, by (direction, bits)


def sheet_of(rows: Sequence[Row], bits: Sequence[int], won: Winners, note: str) -> Sheet:
    """mAP of codes at every length, then of the same outputs before signing."""
    head = [*HEAD, *(f"{b} bits" for b in bits), *(f"{b} real" for b in bits)]
    lines = []
    for direction in DIRECTIONS:
        for row in rows:
            real = [f"{cell.real_mean:.4f}" if cell.real else "" for cell in (row.cells[direction, b] for b in bits)]
            names = [TASKS[direction], row.name, row.reference, row.fidelity]
            lines.append([*names, *_figures(row, direction, bits, won), *real])
    return Sheet(head, lines, note)


def latex(rows: Sequence[Row], bits: Sequence[int], won: Winners) -> str:
    """The paper's layout: the tasks as blocks, codes only."""
    lines = [
        rf"\begin{{tabular}}{{llll{'c' * len(bits)}}}",
        r"\toprule",
        " & ".join([*HEAD, *(f"{b} bits" for b in bits)]) + r" \\",
    ]
    for direction in DIRECTIONS:
        lines.append(r"\midrule")
        for i, row in enumerate(rows):
            task = rf"\multirow{{{len(rows)}}}{{*}}{{{TASKS[direction]}}}" if i == 0 else ""
            words = [row.name, row.reference, row.fidelity, *_figures(row, direction, bits, won)]
            lines.append(" & ".join([task, *map(tex, words)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def comma_separated(rows: Sequence[Row], bits: Sequence[int]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = ["task", "method", "reference", "fidelity", "bits", "map_mean", "map_deviation", "real_mean", "maps"]
    writer.writerow(names)
    for direction in DIRECTIONS:
        for row in rows:
            for b in bits:
                cell = row.cells[direction, b]
                real = f"{cell.real_mean:.4f}" if cell.real else ""
                maps = " ".join(f"{m:.6f}" for m in cell.maps)
                figures = [f"{cell.mean:.6f}", f"{cell.deviation:.6f}", real, maps]
                writer.writerow([TASKS[direction], row.name, row.reference, row.fidelity, b, *figures])
    return stream.getvalue()


def draw_figure(rows: Sequence[Row], bits: Sequence[int]) -> Figure:
    """mAP by code length, with one line per method and one panel per direction. Controls are grey."""
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


def _figures(row: Row, direction: str, bits: Sequence[int], won: Winners) -> list[str]:
    return [row.cells[direction, b].text(bold=won.get((direction, b)) == row.name) for b in bits]
