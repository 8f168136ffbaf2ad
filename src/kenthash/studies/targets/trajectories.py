"""Paths of proxies through training in a plane, point against Kent: the paper's first figure."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from numpy.typing import NDArray

from kenthash.analysis.cooccurrence import companions, most_frequent
from kenthash.analysis.plane import Plane, Travel, ellipse, kent_covariance, principal_plane, travel
from kenthash.analysis.subject import Subject
from kenthash.analysis.topology import cosines, unit
from kenthash.studies.drawing import MANY, QUIET, canvas, tidy
from kenthash.studies.outcome import Outcome, Plot, mean
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import PAIR, TITLES, Study
from kenthash.training.proxy_record import Epoch

SHOWN = 8  # the anchor and the classes most often seen with it
SAMPLES = 60  # of each shown class, faint


def trajectories(study: Study) -> Outcome:
    """The picture is of seed 0; the table is over all classes and seeds."""
    anchor = most_frequent(study.labels)
    shown_classes = np.concatenate([[anchor], companions(study.labels, anchor, SHOWN - 1)])
    travels = [[travel(path) for s in study.subjects[name] for path in s.record.paths] for name in PAIR]
    kin = [mean(_to_anchor(s.means, shown_classes) for s in study.subjects[name]) for name in PAIR]
    head = ["Proxies", "Path length", "Displacement", "Efficiency", "Late step", "Settled in epoch", "Cosine to anchor"]
    rows: list[list[Value]] = [
        [title, *_figures(moved), cosine] for title, moved, cosine in zip(TITLES, travels, kin, strict=True)
    ]
    name = study.classes[anchor]
    caption = (
        "Mean over all classes. Lengths are of chords on the unit sphere; late step: mean step per epoch in the last "
        "quarter of training; settled: first epoch from which on a proxy stays within a tenth of its displacement from "
        f"where it ends. Cosine to anchor: of “{name}” to the {len(shown_classes) - 1} classes most often seen with "
        f"it, after the last epoch. {study.basis}"
    )
    settled = [mean(float(t.settled) for t in moved) for moved in travels]
    late = [mean(t.late_step for t in moved) for moved in travels]
    seen = [
        (
            f"Proxies settle in epoch {settled[0]:.1f} under {TITLES[0]} and {settled[1]:.1f} under {TITLES[1]}, of "
            f"{study.epochs}."
        ),
        (
            f"In the last quarter a proxy still moves by {late[0]:.4f} per epoch ({TITLES[0]}) and {late[1]:.4f} "
            f"({TITLES[1]})."
        ),
    ]
    if len(shown_classes) > 1:
        seen.append(
            f"The proxies that go with “{name}” end at a mean cosine of {kin[0]:.3f} to it under {TITLES[0]} and "
            f"{kin[1]:.3f} under {TITLES[1]}."
        )
    drawn = (
        "(a), (b) Proxies at the end, with samples of their classes and the Kent distributions' one-deviation "
        "ellipses. (c), (d) Their paths, from the small dot to the large one. Seed 0."
    )
    return Outcome(
        target="trajectories",
        title="Trajectories of the proxies",
        measured=f"The directions of “{name}”, the most frequent class, and of the classes most often seen with it are "
        "followed from their start through every epoch. They are seen in the plane of the two principal components of "
        "their paths, point proxies beside Kent proxies.",
        paper="Point proxies move towards the anchor and oscillate on slow paths, while Kent proxies stay apart and "
        "converge smoothly and faster.",
        seen=seen,
        sheets=[Sheet(head, rows, caption)],
        plots=[Plot("figure", _draw(study, shown_classes), drawn)],
    )


def _to_anchor(means: NDArray[np.float32], shown_classes: NDArray[np.int64]) -> float:
    return float(cosines(means[shown_classes])[0, 1:].mean()) if len(shown_classes) > 1 else float("nan")


def _figures(moved: list[Travel]) -> list[Value]:
    efficiency = mean(t.displacement / t.length if t.length > 0 else 1.0 for t in moved)
    parts = ([t.length for t in moved], [t.displacement for t in moved])
    late, settled = mean(t.late_step for t in moved), mean(float(t.settled) for t in moved)
    return [*(mean(part) for part in parts), efficiency, late, f"{settled:.1f}"]


def _draw(study: Study, shown_classes: NDArray[np.int64]) -> Figure:
    figure = canvas(8.4, 8.0)
    panels = figure.subplots(2, 2)
    for column, (name, title) in enumerate(zip(PAIR, TITLES, strict=True)):
        subject = study.subjects[name][0]
        paths = subject.record.paths[shown_classes]
        plane = principal_plane(paths)
        final, way = panels[:, column]
        _final(final, subject, plane, shown_classes, study.classes)
        for path, colour in zip(plane.project(paths), MANY, strict=False):
            way.plot(*path.T, color=colour, linewidth=1.4, marker=".", markersize=3)
            way.scatter(*path[0], color=colour, s=14, zorder=3)
            way.scatter(*path[-1], color=colour, s=80, zorder=3, edgecolor="white")
        final.set_title(f"({'ab'[column]}) {title}, end of training")
        way.set_title(f"({'cd'[column]}) {title}, paths by epoch")
        for axes in (final, way):
            tidy(axes, "both").set_aspect("equal", "datalim")
            axes.set_xlabel(f"plane of the paths ({100 * plane.explained:.0f} % of their variance)", size=8)
            axes.tick_params(labelsize=8)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    return figure


def _final(axes: Axes, subject: Subject, plane: Plane, shown_classes: NDArray[np.int64], classes: list[str]) -> None:
    """Proxies of the last epoch, samples of their classes, and ellipses where the proxies have a shape."""
    record = subject.record
    epoch = record.epochs[-1]
    z = unit(epoch.image[: len(record.train)])
    for c, colour in zip(shown_classes, MANY, strict=False):
        members = plane.project(z[subject.labels[record.train][:, c] != 0][:SAMPLES])
        axes.scatter(members[:, 0], members[:, 1], color=colour, s=6, alpha=0.25, linewidth=0)
        x, y = plane.project(epoch.means[c]).tolist()
        axes.scatter(x, y, color=colour, marker="*", s=150, edgecolor="white", zorder=4, label=classes[c])
        if (covariance := _covariance(epoch, int(c))) is not None:
            width, height, angle = ellipse(covariance, plane)
            axes.add_patch(Ellipse((x, y), width, height, angle=angle, fill=False, color=colour, linewidth=1.1))
    axes.axhline(0, color=QUIET, linewidth=0.5)
    axes.axvline(0, color=QUIET, linewidth=0.5)


def _covariance(epoch: Epoch, c: int) -> NDArray[np.float64] | None:
    if epoch.frames is None or epoch.kappa is None or epoch.beta is None:
        return None
    axes = epoch.frames[c, :, 1:].astype(np.float64)
    return kent_covariance(epoch.means[c].astype(np.float64), axes, float(epoch.kappa[c]), epoch.beta[c])
