"""t-SNE of the samples of one class, with the proxies of the classes that come with it."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kenthash.analysis.cooccurrence import companions, most_frequent
from kenthash.analysis.plane import neighbour_agreement, tsne
from kenthash.analysis.subject import Subject
from kenthash.analysis.topology import cosines, unit
from kenthash.evaluation.inputs import Labels
from kenthash.evaluation.measures import Scores
from kenthash.studies.drawing import MANY, QUIET, canvas
from kenthash.studies.outcome import LeftOut, Outcome, Plot, mean
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import PAIR, TITLES, Study

SAMPLES = 800
COMPANIONS = 8


@dataclass(frozen=True)
class Space:
    """Of one method: figures over all seeds, the layout of seed 0."""

    agreement: float  # of neighbours by cosine of outputs
    to_anchor: float  # mean cosine of the companions' proxies to the class's own
    among: float  # and of these to each other
    proxies: Scores  # [1 + companions, 2] in the plane, the class's own first
    points: Scores  # [n, 2] samples in the plane
    kinds: NDArray[np.int64]  # [n] which companion a sample carries, -1 where none

    @property
    def agreement_seen(self) -> float:
        """Of neighbours in the plane."""
        return neighbour_agreement(self.points, self.kinds)


def kinds_of(labels: Labels, shown_classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each item's rarest class among `shown_classes` (most frequent first), as a place in them; −1: none."""
    carried = labels[:, shown_classes] != 0
    last = len(shown_classes) - 1 - carried[:, ::-1].argmax(axis=1)
    return np.where(carried.any(axis=1), last, -1)


def embedding(study: Study) -> Outcome:
    """The picture is of seed 0; the table is over all seeds."""
    anchor = most_frequent(study.labels)
    shown_classes = companions(study.labels, anchor, COMPANIONS)
    name = study.classes[anchor]
    if not len(shown_classes):
        raise LeftOut(f"{study.data}: no class ever comes with “{name}”, so there are no companions to tell apart")
    both = [space(study.subjects[method], anchor, shown_classes) for method in PAIR]
    rows: list[list[Value]] = [
        [title, s.agreement, s.agreement_seen, s.to_anchor, s.among] for title, s in zip(TITLES, both, strict=True)
    ]
    head = ["Proxies", "Agreement of outputs", "Agreement in the plane", "Cosine to anchor", "Cosine among companions"]
    caption = (
        f"Agreement: share of a sample's ten nearest neighbours that carry the same companion of “{name}” (its rarest "
        f"of the {len(shown_classes)} shown), by cosine of outputs and in the plane of seed 0. Cosines of proxies: of "
        f"“{name}” to its companions, and of these to each other. {study.basis}"
    )
    seen = [
        (
            f"{both[0].agreement:.3f} ({TITLES[0]}) and {both[1].agreement:.3f} ({TITLES[1]}) of a sample's ten "
            "nearest neighbours carry the same companion."
        ),
        (
            f"Companions' proxies lie at a mean cosine of {both[0].to_anchor:.3f} ({TITLES[0]}) and "
            f"{both[1].to_anchor:.3f} ({TITLES[1]}) to that of “{name}”, and of {both[0].among:.3f} and "
            f"{both[1].among:.3f} to each other."
        ),
    ]
    drawn = "t-SNE of outputs (dots) and proxies (stars; the black one is the class itself). Seed 0."
    plot = Plot("figure", _draw(both, [name, *(study.classes[c] for c in shown_classes)]), drawn)
    return Outcome(
        target="tsne",
        title=f"The space of one class, “{name}”",
        measured=f"Images that carry “{name}”, the most frequent class, and that were not trained on are laid out by "
        "t-SNE of their outputs after the last epoch, together with the proxies of that class and of its most frequent "
        "companions. Colours tell which companion an image carries.",
        paper="Under the baseline the proxies of co-occurring classes collapse onto the central one; under KDPH the "
        "space falls into radial clusters by kind.",
        seen=seen,
        sheets=[Sheet(head, rows, caption, digits=3)],
        plots=[plot],
    )


def space(subjects: list[Subject], anchor: int, shown_classes: NDArray[np.int64]) -> Space:
    """Of one method's runs, one per seed; the first is laid out."""
    parts = [samples(subject, anchor, shown_classes) for subject in subjects]
    proxies = [subject.means[np.concatenate([[anchor], shown_classes])] for subject in subjects]
    similarities = [cosines(of_seed) for of_seed in proxies]
    points, kinds = parts[0]
    plane = tsne(np.concatenate([proxies[0], points]))
    others = ~np.eye(len(shown_classes), dtype=bool)
    return Space(
        agreement=mean(neighbour_agreement(*part) for part in parts),
        to_anchor=mean(similarity[0, 1:].mean() for similarity in similarities),
        among=mean(mean(similarity[1:, 1:][others]) for similarity in similarities),
        proxies=plane[: len(shown_classes) + 1],
        points=plane[len(shown_classes) + 1 :],
        kinds=kinds,
    )


def samples(subject: Subject, anchor: int, shown_classes: NDArray[np.int64]) -> tuple[Scores, NDArray[np.int64]]:
    """(unit image outputs, kinds) of at most 800 unseen items of the class, in the split's random order."""
    split = subject.run.split
    candidates = np.concatenate([split.query, np.setdiff1d(split.database, split.train, assume_unique=True)])
    rows = candidates[subject.labels[candidates, anchor] != 0][:SAMPLES]
    return unit(subject.last_outputs(rows).image), kinds_of(subject.labels[rows], shown_classes)


def _draw(both: list[Space], names: list[str]) -> Figure:
    figure = canvas(9.6, 5.4)
    panels = figure.subplots(1, 2)
    for column, (axes, title, s) in enumerate(zip(panels, TITLES, both, strict=True)):
        axes.scatter(*s.points[s.kinds < 0].T, color=QUIET, s=5, alpha=0.5, linewidth=0, label="none of these")
        for i, name in enumerate(names[1:]):
            colour = MANY[i % len(MANY)]
            axes.scatter(*s.points[s.kinds == i].T, color=colour, s=9, alpha=0.75, linewidth=0)
            axes.scatter(*s.proxies[i + 1], color=colour, marker="*", s=190, edgecolor="white", zorder=3, label=name)
        axes.scatter(*s.proxies[0], color="black", marker="*", s=260, edgecolor="white", zorder=4, label=names[0])
        axes.set_title(f"({'ab'[column]}) {title}")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#DDDDDD")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize="small")
    return figure
