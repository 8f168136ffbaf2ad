"""Precision-recall and precision@N figures of an evaluation, and recall of own pairs, as PNG and SVG."""

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kenthash.evaluation.report import DIRECTIONS, Evaluation
from kenthash.files import atomic_write

# Okabe & Ito's colours are distinct with any common colour vision, the line styles also in grey.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linestyle": "-"},
    {"color": "#D55E00", "linestyle": "--"},
    {"color": "#009E73", "linestyle": "-."},
    {"color": "#CC79A7", "linestyle": ":"},
    {"color": "#E69F00", "linestyle": (0, (5, 1, 1, 1, 1, 1))},
    {"color": "#56B4E9", "linestyle": (0, (1, 1))},
)


def save_figures(evaluations: Mapping[str, Evaluation], folder: Path) -> list[Path]:
    """Write precision_recall and precision_at_n, each as .png and .svg; names of `evaluations` label the lines."""
    figure, axes = _canvas()
    for (name, e), style in _styled(evaluations):
        axes.plot(e.recall_levels, e.precision_at_recall, label=_label(name, e), linewidth=2, **style)
    axes.set(xlabel="Recall", ylabel="Precision", xlim=(0, 1), title=f"Precision and recall, {_bits(evaluations)}")
    paths = _save(figure, axes, folder / "precision_recall")

    figure, axes = _canvas()
    for (name, e), style in _styled(evaluations):
        n, precision = list(e.precision_curve), list(e.precision_curve.values())
        axes.plot(n, precision, label=_label(name, e), linewidth=2, **style)
    last = max(max(e.precision_curve) for e in evaluations.values())
    axes.set(
        xlabel="N, items retrieved",
        ylabel="Precision@N",
        xlim=(0, max(last, 2)),
        title=f"Precision of the first N, {_bits(evaluations)}",
    )
    return paths + _save(figure, axes, folder / "precision_at_n")


def save_instance_figure(curves: Mapping[str, Mapping[int, float]], bits: int, folder: Path) -> list[Path]:
    """Write own_pairs.png and .svg: for each name, recall of own pairs by the number of items retrieved."""
    figure, axes = _canvas()
    for (name, recall), style in zip(curves.items(), cycle(STYLES)):
        axes.plot(list(recall), list(recall.values()), label=name, linewidth=2, **style)
    axes.set_xscale("log")
    axes.set(xlabel="k, items retrieved", ylabel="Recall@k of the own pair", title=f"Own pairs found, {bits} bits")
    return _save(figure, axes, folder / "own_pairs")


def _styled(evaluations: Mapping[str, Evaluation]) -> list[tuple[tuple[str, Evaluation], dict[str, Any]]]:
    return [(entry, dict(STYLES[i % len(STYLES)])) for i, entry in enumerate(evaluations.items())]


def _bits(evaluations: Mapping[str, Evaluation]) -> str:
    return " / ".join(str(bits) for bits in sorted({e.bits for e in evaluations.values()})) + " bits"


def _label(name: str, e: Evaluation) -> str:
    return f"{DIRECTIONS.get(name, name)} (mAP {e.map:.3f})"


def _canvas() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)  # drawn in memory: needs no screen, and touches no global state
    return figure, figure.add_subplot()


def _save(figure: Figure, axes: Axes, stem: Path) -> list[Path]:
    axes.set_ylim(0, 1)
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(facecolor="white", edgecolor="none", framealpha=0.9)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not again for each format
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for path in paths:
        # Text in the SVG stays text, and the same numbers give the same file.
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "kenthash"}), atomic_write(path) as stream:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(stream, format=path.suffix[1:], dpi=160, metadata=metadata)
    return paths
