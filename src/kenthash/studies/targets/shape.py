"""What the Kent shape is good for: finding a class by its distribution over codes."""

import numpy as np
from matplotlib.figure import Figure

from kenthash.analysis.class_models import class_ranking, class_scores
from kenthash.analysis.subject import Subject
from kenthash.codes import pack
from kenthash.evaluation import paired_test
from kenthash.evaluation.measures import Scores
from kenthash.progress import track
from kenthash.proxies.kinds import Kind
from kenthash.studies.drawing import MANY, canvas, legend_below, tidy
from kenthash.studies.grid import run_all
from kenthash.studies.outcome import Outcome, Plot, mean, signed
from kenthash.studies.results import SIGNIFICANT
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import Study
from kenthash.training.run_folder import Run

KINDS: dict[Kind, str] = {"kent": "Kent", "vmf": "vMF (β = 0)", "point": "point"}

Measured = dict[tuple[Kind, int], Scores]  # AP by class: a mean, since a class's modalities and seeds are much alike


def shape(study: Study) -> Outcome:
    """Distributions fitted to the codes of training items, judged on items that were not trained on."""
    jobs = {
        (b, seed): study.job("kaph", b, seed, {"method": "kaph"}) for b in study.bits for seed in range(study.seeds)
    }
    run_all(list(jobs.values()), "runs to fit to")
    measured: Measured = {}
    for b in track(study.bits, "fitting"):
        subjects = [Subject(Run.open(jobs[b, seed].out, "cpu"), study.source) for seed in range(study.seeds)]
        for kind in KINDS:
            parts = [_measure(subject, kind, seed) for seed, subject in enumerate(subjects)]
            measured[kind, b] = np.mean(parts, axis=0)
    rows: list[list[Value]] = []
    seen = []
    for b in study.bits:
        kent = measured["kent", b]
        rivals: dict[Kind, Scores] = {kind: measured[kind, b] for kind in KINDS if kind != "kent"}
        tests = {kind: paired_test(kent, scores) for kind, scores in rivals.items()}
        ahead = all(t.difference > 0 and t.p_value < SIGNIFICANT for t in tests.values())
        figures = [mean(measured[kind, b]) for kind in KINDS]
        rows.append([str(b), f"**{figures[0]:.4f}**" if ahead else figures[0], *figures[1:]])
        for kind, test in tests.items():
            seen.append(
                f"{b} bits: Kent minus {KINDS[kind]} is {signed(test.difference)} "
                f"[{signed(test.low)}, {signed(test.high)}], p = {test.p_value:.4f} over {test.queries} classes."
            )
    return Outcome(
        target="shape",
        title="What the Kent shape is good for",
        measured="A class has no code, but a distribution over codes; its log-odds rank all items by how much they "
        "look like the class (search by tag, tags from codes). Kent, vMF and point models are fitted to the same codes "
        "of training items, and ranked are items that were not trained on.",
        paper="The paper compares shapes by mAP within its own loss, where Kent is 1 to 2 points ahead of vMF.",
        seen=seen,
        sheets=[
            Sheet(
                ["Bits", *KINDS.values()],
                rows,
                "Mean over classes of the average precision of ranking by class, of image and text codes of KAPH. "
                f"{study.basis_of_lengths} Bold: ahead of both others by the paired test over classes.",
            )
        ],
        plots=[Plot("figure", _draw(study, measured), "Mean average precision of search by class.")],
    )


def _measure(subject: Subject, kind: Kind, seed: int) -> Scores:
    """AP of every class, mean of image and text codes."""
    run, trained = subject.run, subject.run.split.train
    trained = trained[subject.source.captions[trained] > 0]
    train, test = run.outputs(subject.source, trained), run.outputs(subject.source, subject.unseen)
    codes = np.concatenate([pack(train.image), pack(train.text)])
    labels = np.tile(subject.labels[trained], (2, 1))
    scores = class_scores(kind, codes, labels, np.concatenate([pack(test.image), pack(test.text)]), seed)
    halves = np.split(scores, 2)
    return np.asarray(np.mean([class_ranking(half, subject.labels[subject.unseen]) for half in halves], axis=0))


def _draw(study: Study, measured: Measured) -> Figure:
    figure = canvas(5.6, 3.4)
    axes = tidy(figure.add_subplot())
    width = 0.8 / len(KINDS)
    for i, (kind, title) in enumerate(KINDS.items()):
        places = [x + (i - 1) * width for x in range(len(study.bits))]
        values = [mean(measured[kind, b]) for b in study.bits]
        axes.bar(places, values, width * 0.94, color=MANY[i], label=title)
    axes.set_xticks(range(len(study.bits)), [f"{b} bits" for b in study.bits])
    axes.set_ylabel("mean AP of a class")
    legend_below(figure, axes)
    return figure
