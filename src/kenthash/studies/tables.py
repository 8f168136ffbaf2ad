"""The results of a comparison: in the layout of the paper's Table 1 as a sheet and as LaTeX, as CSV with one row per
figure, and as a drawing."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from kenthash.evaluation.instances import INSTANCE_KS
from kenthash.studies.drawing import canvas, tidy
from kenthash.studies.results import DIRECTIONS, MEAN, Cell, Row, with_mean
from kenthash.studies.sheet import MISSING, Sheet, tex

HEAD = ("Task", "Method", "Reference", "Fidelity")
TASKS = {"i2t": "I2T", "t2i": "T2I", MEAN: "Mean"}
RECALL_K = 10
OWN_PAIRS = (
    f"`R@{RECALL_K}`: of how many photos, in per cent, the own caption is among the first {RECALL_K}, and the other "
    "way round, among the query items alone; it has no part in mAP. `Mean`: of both directions, seed by seed, which is "
    "not tested."
)

# Okabe & Ito's colours; the marker changes when they are used up, so that every row is its own.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

Figures = Callable[[Cell], tuple[float, float]]  # mean and deviation over seeds
Winners = dict[tuple[str, int], str]  # the name of the row that is bold, by (direction, bits)


def sheet_of(rows: Sequence[Row], bits: Sequence[int], won: Winners, note: str) -> Sheet:
    """mAP of codes at every length, that of the same outputs before signing, and recall@10 of own pairs in per cent:
    of both directions, and the mean of both. What no row has, as mAP without labels, has no columns."""
    by_labels, own_pairs = has_maps(rows), has_recalls(rows)
    head = [*HEAD]
    if by_labels:
        head += [*(f"{b} bits" for b in bits), *(f"{b} real" for b in bits)]
    if own_pairs:
        head += [f"{b} R@{RECALL_K}" for b in bits]
    lines = []
    rows = _with_means(rows)
    for direction in TASKS:
        for row in rows:
            cells = [row.cells.get((direction, b)) for b in bits]
            line = [TASKS[direction], row.name, row.reference, row.fidelity]
            if by_labels:
                real = [f"{cell.real_mean:.4f}" if cell and cell.real else MISSING for cell in cells]
                line += [*_figures(row, direction, bits, won), *real]
            if own_pairs:
                line += _recalls(row, direction, bits)
            lines.append(line)
    return Sheet(head, lines, note)


def latex(rows: Sequence[Row], bits: Sequence[int], won: Winners) -> str:
    """The paper's layout: the tasks as blocks, codes only; after mAP, recall@10 of own pairs in per cent."""
    by_labels, own_pairs = has_maps(rows), has_recalls(rows)
    columns = [*(f"{b} bits" for b in bits if by_labels), *(f"{b} R@{RECALL_K}" for b in bits if own_pairs)]
    lines = [
        rf"\begin{{tabular}}{{llll{'c' * len(columns)}}}",
        r"\toprule",
        " & ".join([*HEAD, *columns]) + r" \\",
    ]
    rows = _with_means(rows)
    for direction in TASKS:
        lines.append(r"\midrule")
        for i, row in enumerate(rows):
            task = rf"\multirow{{{len(rows)}}}{{*}}{{{TASKS[direction]}}}" if i == 0 else ""
            words = [row.name, row.reference, row.fidelity]
            words += _figures(row, direction, bits, won) if by_labels else []
            words += _recalls(row, direction, bits) if own_pairs else []
            lines.append(" & ".join([task, *map(tex, words)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def comma_separated(rows: Sequence[Row], bits: Sequence[int]) -> str:
    """One row per method, length and direction, and one for the mean of both directions; a field is empty where there
    is no such figure."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = ["task", "method", "reference", "fidelity", "bits", "map_mean", "map_deviation", "real_mean", "maps"]
    writer.writerow([*names, *(f"recall_at_{k}" for k in INSTANCE_KS), f"recall_at_{RECALL_K}_deviation"])
    rows = _with_means(rows)
    for direction in TASKS:
        for row in rows:
            for b in bits:
                cell = row.cells[direction, b]
                real = f"{cell.real_mean:.4f}" if cell.real else ""
                maps = " ".join(f"{m:.6f}" for m in cell.maps)
                figures = [f"{cell.mean:.6f}", f"{cell.deviation:.6f}"] if cell.maps else ["", ""]
                recalls = [f"{cell.recall_mean(k):.6f}" if k in cell.recalls else "" for k in INSTANCE_KS]
                spread = f"{cell.recall_deviation(RECALL_K):.6f}" if RECALL_K in cell.recalls else ""
                names = [TASKS[direction], row.name, row.reference, row.fidelity]
                writer.writerow([*names, b, *figures, real, maps, *recalls, spread])
    return stream.getvalue()


def draw_figure(rows: Sequence[Row], bits: Sequence[int]) -> Figure:
    """mAP by code length, and below it recall@10 of own pairs, with one line per method and one panel per direction.
    Controls are grey."""
    measures: list[tuple[str, Figures]] = []
    if has_maps(rows):
        measures.append(("mAP", lambda cell: (cell.mean, cell.deviation)))
    if has_recalls(rows):
        measures.append((f"own pairs, R@{RECALL_K} (%)", _recall_in_per_cent))
    figure = canvas(9.5, 0.6 + 4.0 * len(measures))
    panels = figure.subplots(len(measures), 2, sharey="row", squeeze=False)
    for line, (name, figures_of) in zip(panels, measures, strict=True):
        line[0].set_ylabel(name)
        for axes, (direction, title) in zip(line, DIRECTIONS.items(), strict=True):
            for row, style in zip(rows, _styles(rows), strict=True):
                lengths = [b for b in bits if (direction, b) in row.cells]
                figures = [figures_of(row.cells[direction, b]) for b in lengths]
                means, deviations = [mean for mean, _ in figures], [deviation for _, deviation in figures]
                axes.errorbar(lengths, means, deviations, label=row.name, capsize=2, markersize=4, **style)
            axes.set_xscale("log", base=2)
            axes.set_xticks(bits, [str(b) for b in bits])
            tidy(axes, "both").set(xlabel="bits", title=title)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize="small")
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name is anybody's text, and `$` in it no formula
    return figure


def _recall_in_per_cent(cell: Cell) -> tuple[float, float]:
    return 100 * cell.recall_mean(RECALL_K), 100 * cell.recall_deviation(RECALL_K)


def _styles(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Controls are told apart by their markers, the others by their colours first."""
    styles: list[dict[str, Any]] = []
    place = {True: 0, False: 0}  # of the next control, and of the next other row
    for row in rows:
        control = row.fidelity == "control"
        i = place[control]
        place[control] += 1
        if control:
            styles.append({"color": "#999999", "marker": MARKERS[i % len(MARKERS)], "linestyle": "--"})
        else:
            marker = MARKERS[i // len(COLOURS) % len(MARKERS)]
            styles.append({"color": COLOURS[i % len(COLOURS)], "marker": marker})
    return styles


def _with_means(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, cells=with_mean(row.cells)) for row in rows]


def has_maps(rows: Sequence[Row]) -> bool:
    return any(cell.maps for row in rows for cell in row.cells.values())


def has_recalls(rows: Sequence[Row]) -> bool:
    return any(RECALL_K in cell.recalls for row in rows for cell in row.cells.values())


def _figures(row: Row, direction: str, bits: Sequence[int], won: Winners) -> list[str]:
    """mAP; a length that the row has no figure of is a dash."""
    cells = {b: row.cells.get((direction, b)) for b in bits}
    return [cell.text(bold=won.get((direction, b)) == row.name) if cell else MISSING for b, cell in cells.items()]


def _recalls(row: Row, direction: str, bits: Sequence[int]) -> list[str]:
    cells = [row.cells.get((direction, b)) for b in bits]
    return [(cell.recall_text(RECALL_K) if cell else "") or MISSING for cell in cells]
