"""Settings that decide in practice, a few methods in each: noisy and missing labels, missing captions and pictures, few
training items, long codes. A target is a list of conditions; how they are run, tabled and drawn is the same for all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kenthash.data.splits import make_split
from kenthash.methods import METHODS
from kenthash.studies.drawing import MANY, canvas, legend_below, tidy
from kenthash.studies.grid import run_all
from kenthash.studies.outcome import Outcome, Plot, signed
from kenthash.studies.results import DIRECTIONS, Cell, cells_of
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import PAIR, Study

TRIED = ("dsph", "kdph", "kaph", "kcph")
WITHOUT_LABELS = ("kcph", "ucch", "ucmfh")  # tried where labels are of no use
SHARES = (0.2, 0.4, 0.6)
MISSING = (0.3, 0.6, 0.9)
ITEMS = (500, 1_000, 2_000, 5_000)
LONGEST = 512  # bits
RECALL_K = 10

NOT_OF_THE_PAPER = "The paper does not measure this."


@dataclass(frozen=True)
class Condition:
    name: str  # of its runs, behind that of the method; "" is nothing changed
    group: str  # conditions of a group are points of one line
    title: str
    value: float  # where it stands on the line
    layer: dict[str, Any] = field(compare=False)
    bits: int


@dataclass(frozen=True)
class Sweep:
    target: str
    title: str
    measured: str
    axis: str  # what the values are
    conditions: list[Condition]
    logarithmic: bool = False


Results = dict[tuple[str, Condition], dict[str, Cell]]  # by method and condition; then by direction


def noise(study: Study, methods: Sequence[str] = ("dsph", "kdph", "kaph", "kcph", "rshnl")) -> Outcome:
    """Wrong labels, and labels that nobody gave."""
    bits = study.length
    wrong = [("wrong labels", f"-noise{s:g}", {"label_noise": s}, s) for s in SHARES]
    absent = [("missing labels", f"-unlabelled{s:g}", {"lacking": {"labels": s}}, s) for s in SHARES]
    return _outcome(
        study,
        methods,
        Sweep(
            "noise",
            "Wrong and missing labels",
            "A share of the training items has the labels of another one (wrong labels), or a share of all labels of "
            "the training items is dropped (missing labels), and items that have none left with them. Labels of "
            "validation items, queries and database are right and complete.",
            "share of the training items, or of their labels",
            _with_clean(wrong + absent, bits),
        ),
    )


def missing(study: Study, methods: Sequence[str] | None = None) -> Outcome:
    """Training items without a caption, or without a picture."""
    captions = [("without captions", f"-uncaptioned{s:g}", {"lacking": {"captions": s}}, s) for s in MISSING]
    pictures = [("without pictures", f"-unpictured{s:g}", {"lacking": {"pictures": s}}, s) for s in MISSING]
    return _outcome(
        study,
        methods,
        Sweep(
            "missing",
            "Missing captions and pictures",
            "A share of the training items has no caption, or no picture. Methods that need captions leave items "
            "without them out; the others learn from their pictures and labels. No method here learns from an item "
            "without a picture: that line shows what so many fewer items cost.",
            "share of the training items",
            _with_clean(captions + pictures, study.length),
        ),
    )


def few(study: Study, methods: Sequence[str] | None = None) -> Outcome:
    """Training sets of several sizes."""
    split = make_split(len(study.labels), 0)
    train_size, validation_size = len(split.train), len(split.validation)
    sizes = [size for size in ITEMS if size < train_size] or [train_size // part for part in (8, 4, 2)]
    bits = study.length
    conditions = [
        Condition(
            f"-few{n}", "", f"{n:,}", n, {"split": {"train": n + validation_size, "validation": validation_size}}, bits
        )
        for n in sizes
    ]
    return _outcome(
        study,
        methods,
        Sweep(
            "few",
            "Few training items",
            "Each method is trained on so many items; queries and database are the same, and as many items validate.",
            "training items",
            [*conditions, Condition("", "", f"{train_size:,}", train_size, {}, bits)],
            logarithmic=True,
        ),
    )


def long_codes(study: Study, methods: Sequence[str] | None = None) -> Outcome:
    """Codes from the longest of the study's lengths to 512 bits, each twice as long as the one before."""
    methods = methods or (*tried(study), "cca-itq")
    lengths = [study.length]
    while 2 * lengths[-1] <= LONGEST:
        lengths.append(2 * lengths[-1])
    return _outcome(
        study,
        methods,
        Sweep(
            "long",
            "Long codes",
            "Each method is trained at every length. Shared labels soon have all the bits that they can use; own "
            "pairs, which a search by words asks for, go on gaining.",
            "bits",
            [Condition("", "", f"{bits} bits", bits, {}, bits) for bits in lengths],
            logarithmic=True,
        ),
    )


def tried(study: Study) -> tuple[str, ...]:
    """The methods of a target that can be measured without labels, too."""
    return WITHOUT_LABELS if study.label_fault else TRIED


def map_left_out(study: Study) -> list[str]:
    """The line that says so; none where there is mAP."""
    return [f"mAP is left out: {study.label_fault}."] if study.label_fault else []


def _with_clean(changed: Sequence[tuple[str, str, dict[str, Any], float]], bits: int) -> list[Condition]:
    """The conditions of each group, after one in which nothing is changed."""
    conditions: list[Condition] = []
    for group, name, layer, value in changed:
        if not conditions or conditions[-1].group != group:
            conditions.append(Condition("", group, "0 %", 0.0, {}, bits))
        conditions.append(Condition(name, group, f"{value:.0%}".replace("%", " %"), value, layer, bits))
    return conditions


def recorded(method: str, changed: str) -> bool:
    """Whether a run is one that the analyses need recorded: those of their two methods with nothing changed."""
    return method in PAIR and not changed


def _outcome(study: Study, methods: Sequence[str] | None, sweep: Sweep) -> Outcome:
    methods = methods or tried(study)
    jobs = {
        (method, condition): [
            study.job(
                f"{method}{condition.name}",
                condition.bits,
                seed,
                {"method": method, **condition.layer},
                record=recorded(method, condition.name),
            )
            for seed in range(study.seeds)
        ]
        for condition in sweep.conditions
        for method in methods
    }
    run_all([of_seeds[seed] for seed in range(study.seeds) for of_seeds in jobs.values()], sweep.target)
    results: Results = {}
    for key, of_seeds in jobs.items():
        cells = cells_of({0: [job.out for job in of_seeds]})
        results[key] = {direction: cells[direction, 0] for direction in DIRECTIONS}
    several = any(condition.group for condition in sweep.conditions)
    basis = study.basis_of_lengths if sweep.target == "long" else study.basis
    measures = _measures(study)
    sheets: list[Sheet] = []
    for measure in measures:
        rows: list[list[Value]] = [
            [
                *([condition.group] if several else []),
                condition.title,
                *(measure.of(results[m, condition]) for m in methods),
            ]
            for condition in sweep.conditions
        ]
        head = [*(["Condition"] if several else []), sweep.axis.capitalize(), *(METHODS[m].title for m in methods)]
        caption = f"{measure.caption}, mean of image → text and text → image. {basis}"
        sheets.append(Sheet(head, rows, caption, name="own" if sheets else "table", digits=measure.digits))
    return Outcome(
        target=sweep.target,
        title=sweep.title,
        measured=sweep.measured,
        paper=NOT_OF_THE_PAPER,
        seen=[*map_left_out(study), *(_sentence(sweep, results, method, measures[0]) for method in methods)],
        sheets=sheets,
        plots=[
            Plot(
                "figure",
                _draw(sweep, results, methods, measures),
                "Recall of own pairs." if study.label_fault else "mAP above, recall of own pairs below.",
            )
        ],
    )


def _map(cells: dict[str, Cell]) -> float:
    return float(np.mean([cell.mean for cell in cells.values()]))


def _own(cells: dict[str, Cell]) -> float:
    return 100 * float(np.mean([cell.recall_mean(RECALL_K) for cell in cells.values()]))


@dataclass(frozen=True)
class Measure:
    label: str  # of an axis, and in a sentence
    caption: str
    digits: int
    of: Callable[[dict[str, Cell]], float]


def _measures(study: Study) -> list[Measure]:
    own = Measure(f"own pairs, R@{RECALL_K} (%)", f"Recall@{RECALL_K} of own pairs in per cent", 1, _own)
    return [own] if study.label_fault else [Measure("mAP", "mAP@ALL of signed codes", 4, _map), own]


def _sentence(sweep: Sweep, results: Results, method: str, measure: Measure) -> str:
    """From the first to the last condition of each group."""
    parts = []
    for group, line in _lines(sweep).items():
        first, last = (measure.of(results[method, line[end]]) for end in (0, -1))
        where, digits = f" {group}" if group else "", measure.digits
        change = f"{signed(last - first, digits)} in {measure.label}"
        parts.append(f"{line[0].title} → {line[-1].title}{where}: {first:.{digits}f} → {last:.{digits}f} ({change})")
    return f"{METHODS[method].title}: {'; '.join(parts)}."


def _lines(sweep: Sweep) -> dict[str, list[Condition]]:
    lines: dict[str, list[Condition]] = {}
    for condition in sweep.conditions:
        lines.setdefault(condition.group, []).append(condition)
    return lines


def _draw(sweep: Sweep, results: Results, methods: Sequence[str], measures: Sequence[Measure]) -> Figure:
    lines = _lines(sweep)
    figure = canvas(4.2 * len(lines) if len(lines) > 1 else 5.6, 0.6 + 2.7 * len(measures))
    axes = figure.subplots(len(measures), len(lines), squeeze=False, sharex="col", sharey="row")
    for row, measure in enumerate(measures):
        for column, (group, line) in enumerate(lines.items()):
            panel = tidy(axes[row, column])
            for i, method in enumerate(methods):
                values = [measure.of(results[method, condition]) for condition in line]
                places = [condition.value for condition in line]
                panel.plot(places, values, "o-", color=MANY[i % len(MANY)], label=METHODS[method].title, markersize=4)
            if sweep.logarithmic:
                panel.set_xscale("log", base=2)
                panel.set_xticks([condition.value for condition in line])
                panel.minorticks_off()
            panel.set_xticks([condition.value for condition in line], [condition.title for condition in line])
            if row == 0 and group:
                panel.set_title(group, size=10)
            if row == len(measures) - 1:
                panel.set_xlabel(sweep.axis, size=9 if len(lines) > 1 else 10)
            if column == 0:
                panel.set_ylabel(measure.label)
    legend_below(figure, axes[0, 0])
    return figure
