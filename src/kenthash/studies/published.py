"""The figures that papers print, as data, beside ours: what was measured on the same benchmark at the same length, and
how far the printed number is from that of binary codes here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from kenthash.studies.results import DIRECTIONS, Row
from kenthash.studies.sheet import Sheet, Value

FULL = "full KDPH"  # among the variants of the ablation


@dataclass(frozen=True)
class PublishedAblation:
    """mAP of a method's variants that a paper prints, at one length on one benchmark."""

    source: str
    benchmark: str
    bits: int
    map: dict[str, dict[str, float]]  # by the variant's title and direction


@dataclass(frozen=True)
class Published:
    """mAP that a paper prints."""

    source: str  # the paper and its table
    bits: list[int]
    protocol: str  # as far as the paper and its public code say
    items: dict[str, int]  # of each benchmark
    map: dict[str, dict[str, dict[str, list[float]]]]  # by benchmark, method's title and direction: one per length
    ablation: PublishedAblation


@cache
def published_figures() -> Published:
    """Table 1 and the ablation of the KDPH paper.

    Example:

        >>> published_figures().map["coco"]["KDPH"]["i2t"]
        [0.7636, 0.7761, 0.7843]
        >>> published_figures().ablation.map["no L_Reg"]
        {'i2t': 0.7326, 't2i': 0.7305}
    """
    values = yaml.safe_load((files("kenthash") / "studies" / "published.yaml").read_text(encoding="utf-8"))
    return Published(**values | {"ablation": PublishedAblation(**values["ablation"])})


def benchmark_of(name: str) -> str | None:
    """The benchmark that a data set is of, by its name: coco20k is of coco.

    Example:

        >>> benchmark_of("MS COCO 2017"), benchmark_of("scenes")
        ('coco', None)
    """
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    return next((benchmark for benchmark in published_figures().map if benchmark in plain), None)


def beside_published(rows: Sequence[Row], bits: Sequence[int], name: str, items: int) -> Sheet | None:
    """The methods that the paper has figures of, for the data set `name` of so many items: printed, codes here, real
    values here, and how far the printed number is from that of codes. None where no benchmark, method or length agrees.
    """
    paper, benchmark = published_figures(), benchmark_of(name)
    lengths = [b for b in bits if b in paper.bits]
    if benchmark is None or not lengths:
        return None
    head = ["Task", "Method"]
    for b in lengths:
        head += [f"{b} printed", f"{b} codes", f"{b} real", f"{b} printed − codes"]
    lines = [
        [title, row.name, *(value for b in lengths for value in _figures(row, direction, b, paper, benchmark))]
        for direction, title in DIRECTIONS.items()
        for row in rows
        if row.name in paper.map[benchmark]
    ]
    if not lines:
        return None
    return Sheet(head, lines, _what_differs(paper, paper.source, benchmark, name, items), name="published")


def ablation_beside_published(rows: Sequence[Row], bits: int, name: str, items: int) -> Sheet | None:
    """The variants of KDPH as the paper prints them and as measured here; and how much each loses against the full
    method, which can be compared better than the figures. None where data or length do not agree with the paper's.
    """
    paper, benchmark = published_figures(), benchmark_of(name)
    printed = paper.ablation.map
    if benchmark is None or (benchmark, bits) != (paper.ablation.benchmark, paper.ablation.bits):
        return None
    full = next(row for row in rows if row.name == FULL)
    lines: list[list[Value]] = []
    for direction, title in DIRECTIONS.items():
        for row in rows:
            cell, full_cell = (r.cells[direction, bits] for r in (row, full))
            losses = printed[FULL][direction] - printed[row.name][direction], full_cell.mean - cell.mean
            figures = [printed[row.name][direction], cell.mean, cell.real_mean]
            lines.append([title, row.name, *figures, figures[0] - cell.mean, *losses])
    head = ["Task", "Variant", "printed", "codes", "real", "printed − codes", "loss, printed", "loss, codes"]
    caption = f"mAP at {bits} bits; loss: of {FULL} minus that of the variant. "
    return Sheet(
        head, lines, caption + _what_differs(paper, paper.ablation.source, benchmark, name, items), name="published"
    )


def _what_differs(paper: Published, source: str, benchmark: str, name: str, items: int) -> str:
    return (
        "mAP: `printed` in the paper; `codes` of binary codes here, `real` of the same outputs before signing; "
        "`printed − codes` is how far the printed figure is from codes. "
        f"Printed: {source}, {paper.items[benchmark]:,} items of {benchmark}. {paper.protocol} Here: {name}, "
        f"{items:,} items, under the rules of the table above. So the columns are not of one experiment."
    )


def _figures(row: Row, direction: str, bits: int, paper: Published, benchmark: str) -> list[Value]:
    printed = _printed(paper.map[benchmark][row.name], direction, paper.bits.index(bits))
    cell = row.cells.get((direction, bits))
    if cell is None:
        return [printed, None, None, None]
    return [printed, cell.mean, cell.real_mean, printed - cell.mean]


def _printed(figures: Mapping[str, Sequence[float]], direction: str, place: int) -> float:
    return figures[direction][place]
