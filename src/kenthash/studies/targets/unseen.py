"""Queries of classes that training never saw: do codes find what nobody taught them?

Some classes are left out of training with all of their items. Queries and relevance are then by these classes alone,
and the same methods trained on as many items of all classes show what seeing a class is worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from kenthash.codes import pack
from kenthash.data.splits import make_split
from kenthash.evaluation import map_of
from kenthash.methods import METHODS
from kenthash.studies.drawing import I2T, QUIET, canvas, legend_below, tidy
from kenthash.studies.grid import Job, run_all
from kenthash.studies.outcome import LeftOut, Outcome, Plot, signed
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import Study
from kenthash.studies.targets.conditions import NOT_OF_THE_PAPER
from kenthash.training.lacking import items_of, split_without
from kenthash.training.recipe import Lacking
from kenthash.training.run_folder import Run
from kenthash.training.supervision import measured

TRIED = ("dsph", "kdph", "kaph", "kcph", "ucch", "cca-itq")
PART = 5  # of so many classes that are rare enough, one is left out
COMMON = 0.15  # a class of more than this share of the items is not: too little would be left to train on


@dataclass(frozen=True)
class Arms:
    """The two runs of a method with one seed."""

    unseen: Job
    seen: Job


def unseen(study: Study, methods: Sequence[str] = TRIED) -> Outcome:
    """Every method twice: without some classes, and with all of them on as many items."""
    classes = left_out_classes(study)
    jobs = {method: [_arms(study, method, seed, classes) for seed in range(study.seeds)] for method in methods}
    run_all([job for arms in jobs.values() for a in arms for job in (a.unseen, a.seen)], "unseen classes")
    columns = [study.classes.index(name) for name in classes]
    figures = {
        method: {arm: [_score(study, getattr(a, arm), columns) for a in arms] for arm in ("seen", "unseen")}
        for method, arms in jobs.items()
    }
    rows: list[list[Value]] = []
    seen = []
    for method, by_arm in figures.items():
        before, after = (float(np.mean(by_arm[arm])) for arm in ("seen", "unseen"))
        rows.append([METHODS[method].title, METHODS[method].fidelity, before, after, signed(after - before)])
        seen.append(f"{METHODS[method].title}: {before:.4f} with the classes in training, {after:.4f} without them.")
    split = split_without(make_split(len(study.labels), 0), study.features.dataset, Lacking(classes=classes))
    names = ", ".join(classes[:6]) + (" ..." if len(classes) > 6 else "")
    return Outcome(
        target="unseen",
        title="Queries of classes that training never saw",
        measured=f"{len(classes)} of {len(study.classes)} classes ({names}) are left out of training and validation "
        "with all of their items. Queries are the items of these classes, and relevant is what shares one of them. "
        "The same methods trained on as many items of all classes stand beside it.",
        paper=NOT_OF_THE_PAPER,
        seen=seen,
        sheets=[
            Sheet(
                ["Method", "Fidelity", "Seen in training", "Never seen", "Difference"],
                rows,
                f"mAP@ALL of signed codes by the classes left out alone ({len(classes)}), mean of image → text and "
                f"text → image; both columns are of {len(split.train):,} training items (seed 0). {study.basis}",
            )
        ],
        plots=[Plot("figure", _draw(figures), "mAP of queries of these classes.")],
    )


def left_out_classes(study: Study) -> list[str]:
    """One in five of the classes that are rare enough, evenly from rare to frequent."""
    shares = (study.labels > 0).mean(axis=0)
    order = [int(c) for c in np.argsort(shares, kind="stable") if 0 < shares[c] <= COMMON]
    chosen = [study.classes[c] for c in order[PART // 2 :: PART]]
    if not chosen:
        raise LeftOut(f"no {PART // 2 + 1} of its classes have at most {COMMON:.0%} of the items each")
    return chosen


def _arms(study: Study, method: str, seed: int, classes: list[str]) -> Arms:
    lacking = Lacking(classes=classes)
    split = split_without(make_split(len(study.labels), seed), study.features.dataset, lacking)
    train, validation = len(split.train), len(split.validation)
    without = {"method": method, "lacking": {"classes": classes}}
    fewer = {"method": method, "split": {"train": train + validation, "validation": validation}}
    return Arms(
        study.job(f"{method}-unseen", study.length, seed, without),
        study.job(f"{method}-as-many", study.length, seed, fewer),
    )


def _score(study: Study, job: Job, columns: list[int]) -> float:
    run = Run.open(job.out, "cpu")
    labels = study.labels[:, columns]
    query_rows, database = measured(study.labels, study.source.captions, run.split)
    query_rows = query_rows[items_of(study.features.dataset, [study.classes[c] for c in columns])[query_rows]]
    if not len(query_rows):
        raise LeftOut("no query is of a class that is left out of training")
    query, ranked = (run.outputs(study.source, rows) for rows in (query_rows, database))
    sides = ((query.image, ranked.text), (query.text, ranked.image))
    return float(np.mean([map_of(pack(a), pack(b), labels[query_rows], labels[database]) for a, b in sides]))


def _draw(figures: dict[str, dict[str, list[float]]]) -> Figure:
    figure = canvas(6.6, 3.6)
    axes = tidy(figure.add_subplot())
    for i, (arm, label, colour) in enumerate((("seen", "seen in training", QUIET), ("unseen", "never seen", I2T))):
        places = [x + (i - 0.5) * 0.38 for x in range(len(figures))]
        values = [float(np.mean(by_arm[arm])) for by_arm in figures.values()]
        bars = axes.bar(places, values, 0.36, color=colour, label=label)
        axes.bar_label(bars, [f"{value:.3f}" for value in values], size=8, padding=2)
    axes.set_xticks(range(len(figures)), [METHODS[method].title for method in figures])
    axes.set_ylabel("mAP by the classes left out")
    legend_below(figure, axes)
    return figure
