"""Nested codes: one model of the longest length, whose first bits are codes too, against a model of each length."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kenthash.files import read_json
from kenthash.methods import METHODS
from kenthash.studies.drawing import METHOD as NESTED_COLOUR
from kenthash.studies.drawing import QUIET, canvas, legend_below, tidy
from kenthash.studies.grid import Job, run_all
from kenthash.studies.outcome import LeftOut, Outcome, Plot, signed
from kenthash.studies.results import DIRECTIONS
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import Study
from kenthash.studies.targets.conditions import NOT_OF_THE_PAPER, map_left_out, recorded

METHOD = "kcph"
RECALL_K = 10


@dataclass(frozen=True)
class Measure:
    name: str
    digits: int
    of: Callable[[dict[str, Any]], float]  # from the figures of one direction


OWN = Measure(f"R@{RECALL_K}", 1, lambda figures: 100 * float(figures["instance_recall"][str(RECALL_K)]))
MAP = Measure("mAP", 4, lambda figures: float(figures["map"]))


@dataclass(frozen=True)
class Pair:
    """One length: the first bits of the nested model, and the model trained for it, one figure per seed."""

    nested: list[float]
    alone: list[float]

    @property
    def differences(self) -> list[float]:
        return [a - b for a, b in zip(self.nested, self.alone, strict=True)]


Pairs = dict[tuple[str, int], Pair]  # by the name of a measure and the length


def nested(study: Study, method: str = METHOD) -> Outcome:
    """One training for all lengths of the study, and one for each of them."""
    *shorter, longest = lengths = sorted(study.bits)
    if not shorter:
        raise LeftOut(f"nested codes have several lengths: give them with --bits, for example {longest // 2},{longest}")
    seeds = range(study.seeds)
    together = [
        study.job(f"{method}-nested", longest, seed, {"method": method, "nested": shorter, "bits": longest})
        for seed in seeds
    ]
    alone = {
        b: [study.job(method, b, seed, {"method": method}, record=recorded(method, "")) for seed in seeds]
        for b in lengths
    }
    run_all([*together, *(job for jobs in alone.values() for job in jobs)], "nested codes")
    measures = [OWN] if study.label_fault else [MAP, OWN]
    pairs: Pairs = {}
    for measure in measures:
        for b in lengths:
            first = [_figure(job, measure, None if b == longest else b) for job in together]
            pairs[measure.name, b] = Pair(first, [_figure(job, measure, None) for job in alone[b]])
    title = METHODS[method].title
    what = "mean of image → text and text → image; R@10 of own pairs in per cent"
    return Outcome(
        target="nested",
        title="One nested code against a code for each length",
        measured=f"One model of {title} learns {longest} bits whose first {', '.join(map(str, shorter))} are codes by "
        "themselves. Beside it stand models that were trained for one length each.",
        paper=NOT_OF_THE_PAPER,
        seen=[*map_left_out(study), *(_sentence(pairs, measures, b) for b in lengths)],
        sheets=[
            Sheet(
                ["Bits", *(f"{m.name} {column}" for m in measures for column in ("nested", "alone", "difference"))],
                [[str(b), *(word for m in measures for word in _words(pairs[m.name, b], m))] for b in lengths],
                f"{title}: the first bits of one nested model of {longest} bits, and models of each length alone; "
                f"{what}. {study.basis_of_lengths}",
            ),
            Sheet(
                ["Bits", "Seed", *(f"{m.name} {c}" for m in measures for c in ("nested", "alone", "difference"))],
                [[str(b), str(s), *_of_seed(pairs, measures, b, s)] for b in lengths for s in seeds],
                f"The same by seed; {what}.",
                name="seeds",
            ),
        ],
        plots=[Plot("figure", _draw(pairs, measures, lengths), "Nested codes, and codes of each length alone.")],
    )


def _figure(job: Job, measure: Measure, bits: int | None) -> float:
    """The mean of both directions, of the whole code or of its first bits."""
    metrics = read_json(job.out / "metrics.json")
    figures = metrics if bits is None else metrics["nested"][str(bits)]
    return float(np.mean([measure.of(figures[direction]) for direction in DIRECTIONS]))


def _words(pair: Pair, measure: Measure) -> list[Value]:
    """Means over seeds, and the difference with its deviation where there are several."""
    digits, gaps = measure.digits, pair.differences
    spread = f" ± {np.std(gaps, ddof=1):.{digits}f}" if len(gaps) > 1 else ""
    means = [f"{np.mean(values):.{digits}f}" for values in (pair.nested, pair.alone)]
    return [*means, signed(float(np.mean(gaps)), digits) + spread]


def _of_seed(pairs: Pairs, measures: Sequence[Measure], bits: int, seed: int) -> list[Value]:
    words: list[Value] = []
    for m in measures:
        pair = pairs[m.name, bits]
        words += [f"{pair.nested[seed]:.{m.digits}f}", f"{pair.alone[seed]:.{m.digits}f}"]
        words.append(signed(pair.differences[seed], m.digits))
    return words


def _sentence(pairs: Pairs, measures: Sequence[Measure], bits: int) -> str:
    gaps = {m.name: (float(np.mean(pairs[m.name, bits].differences)), m.digits) for m in measures}
    return f"{bits} bits, nested minus alone: {', '.join(f'{signed(gap, d)} in {n}' for n, (gap, d) in gaps.items())}."


def _draw(pairs: Pairs, measures: Sequence[Measure], lengths: Sequence[int]) -> Figure:
    figure = canvas(4.2 * len(measures), 3.6)
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        tidy(axes, "both")
        for kind, title, colour, marker in (
            ("alone", "one model for each length", QUIET, "o"),
            ("nested", "first bits of one nested model", NESTED_COLOUR, "*"),
        ):
            values = [getattr(pairs[measure.name, b], kind) for b in lengths]
            means, spreads = [np.mean(v) for v in values], [np.std(v, ddof=1) if len(v) > 1 else 0 for v in values]
            axes.errorbar(lengths, means, spreads, color=colour, marker=marker, label=title, capsize=2)
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [str(b) for b in lengths])
        axes.minorticks_off()
        axes.set(xlabel="bits", ylabel="mAP" if measure is MAP else f"own pairs, R@{RECALL_K} (%)")
    legend_below(figure, panels[0])
    return figure
