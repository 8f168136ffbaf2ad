"""Train on one data set and ask another: what a model is worth on somebody else's pictures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from matplotlib.figure import Figure

from kenthash.codes import pack
from kenthash.data.splits import make_split
from kenthash.errors import DataError
from kenthash.evaluation import instance_scores, map_of
from kenthash.methods import METHODS
from kenthash.studies.drawing import I2T, QUIET, canvas, legend_below, tidy
from kenthash.studies.grid import Job, run_all
from kenthash.studies.outcome import LeftOut, Outcome, Plot
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import Study
from kenthash.studies.targets.conditions import NOT_OF_THE_PAPER, map_left_out, recorded, tried
from kenthash.training.run_folder import Run
from kenthash.training.sources import FeatureSource
from kenthash.training.supervision import measured

RECALL_K = 10
ARMS = {"home": "trained there", "away": "trained elsewhere"}


@dataclass(frozen=True)
class Score:
    map: float  # mean of both directions, as is the recall; NaN where labels are of no use
    recall: float  # @10 of own pairs, in per cent


@dataclass(frozen=True)
class TargetData:
    """The data set that is asked: its study, whose runs are the models at home."""

    study: Study

    @cached_property
    def source(self) -> FeatureSource:
        return FeatureSource(self.study.features, torch.device("cpu"))

    def score(self, job: Job, seed: int) -> Score:
        """Of any run, on the queries and the database of this data set's split by `seed`."""
        run, labels = Run.open(job.out, "cpu"), self.study.labels
        rows, database = measured(labels, self.source.captions, make_split(len(labels), seed))
        query = run.outputs(self.source, rows)
        maps = [float("nan")]
        if not self.study.label_fault:
            ranked = run.outputs(self.source, database)
            sides = ((pack(query.image), pack(ranked.text)), (pack(query.text), pack(ranked.image)))
            maps = [map_of(a, b, labels[rows], labels[database]) for a, b in sides]
        own, image, text = np.arange(len(rows)), pack(query.image), pack(query.text)
        recalls = [
            instance_scores(a, b, own, own, [RECALL_K]).recall[RECALL_K] for a, b in ((image, text), (text, image))
        ]
        return Score(float(np.mean(maps)), 100 * float(np.mean(recalls)))


def transfer(study: Study, methods: Sequence[str] | None = None) -> Outcome:
    """Models of the study's data and of the other's, all asked on the other. Where one of them has no labels, the
    methods are those that need none."""
    if study.other is None:
        raise LeftOut("another data set is needed, to ask the models: give --other PACK")
    target = TargetData(replace(study, data=study.other, other=None))
    _check_same_encoder(study, target.study)
    methods = methods or (*tried(study if study.label_fault else target.study), "cca-itq")
    measures = {"recall": "R@10"} if target.study.label_fault else {"map": "mAP", "recall": "R@10"}
    jobs = {
        (method, arm): [
            owner.job(f"{method}{suffix}", study.length, seed, {"method": method}, record=recorded(method, suffix))
            for seed in range(study.seeds)
        ]
        for method in methods
        for arm, owner, suffix in (("home", target.study, "-other"), ("away", study, ""))
    }
    run_all([job for of_seeds in jobs.values() for job in of_seeds], "transfer")
    scores = {key: [target.score(job, seed) for seed, job in enumerate(of_seeds)] for key, of_seeds in jobs.items()}
    means = {
        key: Score(float(np.mean([s.map for s in seed_scores])), float(np.mean([s.recall for s in seed_scores])))
        for key, seed_scores in scores.items()
    }
    first = next(iter(measures))
    here, there = (s.features.dataset.name for s in (study, target.study))
    rows: list[list[Value]] = [
        [METHODS[m].title, *(_text(means[m, arm], measure) for measure in measures for arm in ("away", "home"))]
        for m in methods
    ]
    return Outcome(
        target="transfer",
        title="Trained on one data set, asked on another",
        measured=f"Models trained on {here} hash {there}, whose pictures they have never seen, beside models trained "
        f"on {there} itself. Queries, database and labels are those of {there}.",
        paper=NOT_OF_THE_PAPER,
        seen=[
            *map_left_out(target.study),
            *(
                f"{METHODS[m].title}: {measures[first]} {_text(means[m, 'away'], first)} trained on {here}, "
                f"{_text(means[m, 'home'], first)} on {there}."
                for m in methods
            ),
        ],
        sheets=[
            Sheet(
                ["Method", *(f"{what}, {ARMS[arm]}" for what in measures.values() for arm in ("away", "home"))],
                rows,
                f"Asked on {there}; elsewhere is {here}. Signed codes, mean of image → text and text → image; R@10 of "
                f"own pairs in per cent. {target.study.basis}",
            )
        ],
        plots=[
            Plot(
                "figure",
                _draw(means, methods, list(measures)),
                f"On {there}: {'mAP, and ' if 'map' in measures else ''}recall of own pairs.",
            )
        ],
    )


def _text(score: Score, measure: str) -> str:
    return f"{score.map:.4f}" if measure == "map" else f"{score.recall:.1f}"


def _check_same_encoder(study: Study, other: Study) -> None:
    """Models take vectors of the encoder that they were trained with."""
    a, b = study.source, FeatureSource(other.features, torch.device("cpu"))
    if (a.image_dim, a.text_dim) != (b.image_dim, b.text_dim) or len({a.encoder_weights, b.encoder_weights} - {""}) > 1:
        raise DataError(
            f"{other.data}: its vectors are by another encoder than those of {study.data}: encode both with the same"
        )


def _draw(means: dict[tuple[str, str], Score], methods: Sequence[str], measures: Sequence[str]) -> Figure:
    figure = canvas(4.2 * len(measures), 3.6)
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, name in zip(panels, measures, strict=True):
        tidy(axes)
        for i, ((arm, title), colour) in enumerate(zip(ARMS.items(), (QUIET, I2T), strict=True)):
            places = [x + (i - 0.5) * 0.38 for x in range(len(methods))]
            axes.bar(places, [getattr(means[m, arm], name) for m in methods], 0.36, color=colour, label=title)
        axes.set_xticks(range(len(methods)), [METHODS[m].title for m in methods], size=8)
        axes.set_ylabel("mAP" if name == "map" else f"own pairs, R@{RECALL_K} (%)")
    legend_below(figure, panels[0])
    return figure
