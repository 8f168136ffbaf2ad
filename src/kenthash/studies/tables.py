"""A comparison in the layout of the paper's Table 1, as Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Sequence

from kenthash.studies.results import DIRECTIONS, Cell, Row

TASKS = {"i2t": "I2T", "t2i": "T2I"}


def markdown(rows: Sequence[Row], bits: Sequence[int], won: dict[tuple[str, int], str]) -> str:
    head = ["Task", "Method", "Reference", "Fidelity", *(f"{b} bits" for b in bits), *(f"{b} real" for b in bits)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * 4 + "---:|" * (len(head) - 4)]
    for direction in DIRECTIONS:
        for row in rows:
            cells = [_text(row, direction, b, won, "**{}**", " ± ") for b in bits]
            real = [_real(row.cells.get((direction, b))) for b in bits]
            lines.append(f"| {' | '.join([TASKS[direction], row.name, row.reference, row.fidelity, *cells, *real])} |")
    return "\n".join(lines) + "\n"


def latex(rows: Sequence[Row], bits: Sequence[int], won: dict[tuple[str, int], str]) -> str:
    lines = [
        rf"\begin{{tabular}}{{llll{'c' * len(bits)}}}",
        r"\toprule",
        " & ".join(["Task", "Method", "Reference", "Fidelity", *(f"{b} bits" for b in bits)]) + r" \\",
    ]
    for direction in DIRECTIONS:
        lines.append(r"\midrule")
        for i, row in enumerate(rows):
            task = rf"\multirow{{{len(rows)}}}{{*}}{{{TASKS[direction]}}}" if i == 0 else ""
            cells = [_text(row, direction, b, won, r"\textbf{{{}}}", r" $\pm$ ") for b in bits]
            lines.append(" & ".join([task, escaped(row.name), escaped(row.reference), row.fidelity, *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def comma_separated(rows: Sequence[Row], bits: Sequence[int]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = ["task", "method", "reference", "fidelity", "bits", "map_mean", "map_deviation", "real_mean", "maps"]
    writer.writerow(names)
    for direction in DIRECTIONS:
        for row in rows:
            for b in bits:
                if (cell := row.cells.get((direction, b))) is not None:
                    maps = " ".join(f"{m:.6f}" for m in cell.maps)
                    figures = [f"{cell.mean:.6f}", f"{cell.deviation:.6f}", _real(cell), maps]
                    writer.writerow([TASKS[direction], row.name, row.reference, row.fidelity, b, *figures])
    return stream.getvalue()


def _text(row: Row, direction: str, bits: int, won: dict[tuple[str, int], str], bold: str, plus_minus: str) -> str:
    cell = row.cells.get((direction, bits))
    if cell is None:
        return "–"
    text = f"{cell.mean:.4f}"
    if len(cell.maps) > 1:
        text += f"{plus_minus}{cell.deviation:.4f}"
    return bold.format(text) if won.get((direction, bits)) == row.name else text


def _real(cell: Cell | None) -> str:
    return f"{sum(cell.real) / len(cell.real):.4f}" if cell is not None and cell.real else ""


def escaped(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, "\\" + character)
    return text
