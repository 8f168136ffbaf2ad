"""t-SNE of the samples of one class, with the proxies of the classes that come with it."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kenthash.analysis.cooccurrence import companions
from kenthash.analysis.topology import cosines
from kenthash.analysis.tsne import neighbour_agreement, tsne
from kenthash.evaluation.inputs import Labels
from kenthash.evaluation.ranking import Scores
from kenthash.studies.drawing import MANY, QUIET, canvas
from kenthash.studies.outcome import Outcome, Picture, mean
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import PAIR, Study
from kenthash.studies.subject import Subject

SAMPLES = 800
COMPANIONS = 8


def kinds_of(labels: Labels, shown: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each item's rarest class among `shown` (most frequent first), as a place in `shown`; −1 where it has none."""
    carried = labels[:, shown] != 0
    last = len(shown) - 1 - carried[:, ::-1].argmax(axis=1)
    return np.where(carried.any(axis=1), last, -1)


def embedding(study: Study) -> Outcome:
    """The picture is of seed 0; the table is over all seeds."""
    anchor = int((study.labels != 0).sum(axis=0).argmax())
    shown = companions(study.labels, anchor, COMPANIONS)
    name = study.classes[anchor]
    titles = [study.subjects[n][0].title for n in PAIR]
    places: list[Scores] = []
    rows: list[list[Value]] = []
    for method, title in zip(PAIR, titles, strict=True):
        plane, agreements, to_anchor, among = None, [], [], []
        for subject in study.subjects[method]:
            points, kinds = samples(subject, anchor, shown)
            agreements.append(neighbour_agreement(points, kinds))
            proxies = subject.means[np.concatenate([[anchor], shown])]
            similarity = cosines(proxies)
            to_anchor.append(float(similarity[0, 1:].mean()) if len(shown) else float("nan"))
            among.append(mean(similarity[1:, 1:][~np.eye(len(shown), dtype=bool)]))
            if plane is None:
                plane = tsne(np.concatenate([proxies, points]))
                seen_agreement = neighbour_agreement(plane[len(proxies) :], kinds)
                places.append(plane)
        rows.append([title, mean(agreements), seen_agreement, mean(to_anchor), mean(among)])
    kinds = samples(study.subjects[PAIR[0]][0], anchor, shown)[1]
    head = ["Proxies", "Agreement of codes", "Agreement in the plane", "Cosine to anchor", "Cosine among companions"]
    caption = (
        f"Agreement: share of a sample's ten nearest neighbours that carry the same companion of “{name}” (its rarest "
        f"of the {len(shown)} shown), by cosine of outputs and in the plane of seed 0. Cosines of proxies: of “{name}” "
        f"to its companions, and of these to each other. {study.basis}"
    )
    seen = [
        (
            f"{float(rows[0][1] or 0):.3f} ({titles[0]}) and {float(rows[1][1] or 0):.3f} ({titles[1]}) of a sample's "
            "ten nearest neighbours carry the same companion."
        ),
        (
            f"Companions' proxies lie at a mean cosine of {float(rows[0][3] or 0):.3f} ({titles[0]}) and "
            f"{float(rows[1][3] or 0):.3f} ({titles[1]}) to that of “{name}”, and of {float(rows[0][4] or 0):.3f} and "
            f"{float(rows[1][4] or 0):.3f} to each other."
        ),
    ]
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
        pictures=[
            Picture(
                "figure",
                _draw(titles, places, kinds, [name, *(study.classes[c] for c in shown)]),
                "t-SNE of outputs (dots) and proxies (stars; the black one is the class itself). Seed 0.",
            )
        ],
    )


def samples(subject: Subject, anchor: int, shown: NDArray[np.int64]) -> tuple[Scores, NDArray[np.int64]]:
    """(unit image outputs, kinds) of at most 800 unseen items of the class, in the split's random order."""
    split = subject.run.split
    candidates = np.concatenate([split.query, np.setdiff1d(split.database, split.train, assume_unique=True)])
    rows = candidates[subject.labels[candidates, anchor] != 0][:SAMPLES]
    outputs = subject.last_outputs(rows).image.astype(np.float64)
    unit = outputs / np.maximum(np.linalg.norm(outputs, axis=1, keepdims=True), 1e-12)
    return unit, kinds_of(subject.labels[rows], shown)


def _draw(titles: list[str], places: list[Scores], kinds: NDArray[np.int64], names: list[str]) -> Figure:
    figure = canvas(9.6, 5.4)
    panels = figure.subplots(1, 2)
    for column, (axes, title, plane) in enumerate(zip(panels, titles, places, strict=True)):
        proxies, points = plane[: len(names)], plane[len(names) :]
        axes.scatter(*points[kinds < 0].T, color=QUIET, s=5, alpha=0.5, linewidth=0, label="none of these")
        for i, name in enumerate(names[1:]):
            colour = MANY[i % len(MANY)]
            axes.scatter(*points[kinds == i].T, color=colour, s=9, alpha=0.75, linewidth=0)
            axes.scatter(*proxies[i + 1], color=colour, marker="*", s=190, edgecolor="white", zorder=3, label=name)
        axes.scatter(*proxies[0], color="black", marker="*", s=260, edgecolor="white", zorder=4, label=names[0])
        axes.set_title(f"({'ab'[column]}) {title}")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#DDDDDD")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize="small")
    return figure
