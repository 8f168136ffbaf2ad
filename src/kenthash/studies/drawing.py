"""Figures in one style: the baseline orange with circles, the method blue with stars, as in the paper."""

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kenthash.files import atomic_write

BASELINE, METHOD = "#D55E00", "#0072B2"  # Okabe & Ito: distinct with any common colour vision
MARKERS = {BASELINE: "o", METHOD: "*"}
I2T, T2I = "#009E73", "#7A5195"  # the two directions, where all is of one method
QUIET = "#B5B5B5"
# For classes side by side; the same authors' order, then three that differ from them in lightness.
MANY = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7A5195", "#8C6D31", "#444444")


def canvas(width: float, height: float) -> Figure:
    """Drawn in memory: needs no screen and touches no global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes, grid: str = "y") -> Axes:
    if grid:
        axes.grid(axis=grid, color="#E3E3E3", linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def twin(axes: Axes) -> Axes:
    """A second vertical axis on the right."""
    other = axes.twinx()
    other.spines["top"].set_visible(False)
    return other


def legend_below(figure: Figure, axes: Axes, *more: Axes, **options: Any) -> None:
    """One legend for all panels, under them."""
    handles, labels = axes.get_legend_handles_labels()
    for other in more:
        extra = other.get_legend_handles_labels()
        handles, labels = handles + extra[0], labels + extra[1]
    options = {"ncols": min(len(labels), 6), "frameon": False, "fontsize": "small"} | options
    figure.legend(handles, labels, loc="outside lower center", **options)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write stem.png and stem.svg. Letters in the SVG are outlines, so that it looks the same everywhere."""
    paths = [stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")]
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not again for each format
    for path in paths:
        with rc_context({"svg.hashsalt": "kenthash"}), atomic_write(path) as stream:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(stream, format=path.suffix[1:], dpi=160, metadata=metadata)
    return paths
