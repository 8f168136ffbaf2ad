"""Draw the pictures of docs/method.md: a Kent proxy on the sphere as β grows, and the same as profiles.

    python scripts/kent_figure.py

The scores are those of `kenthash.proxies.energy`, in three dimensions with one axis.
"""

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kenthash.proxies.energy import energy

OUT = Path(__file__).parents[1] / "docs" / "figures"
KAPPA = 10.0
BETAS = (0.0, 3.0, 5.0, 10.0)
NAMES = ("circle", "ellipse", "band: 2β = κ", "two modes: 2β > κ")
PIXELS = 260
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
COLOURS = ("#56B4E9", "#0072B2", "#009E73", "#D55E00")

Array = NDArray[np.float64]

MU, GAMMA = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])


def density(points: Array, beta: float) -> Array:
    """exp S(z) of unit vectors [N, 3], its highest value set to 1: μ is the z axis, γ the x axis."""
    frame = torch.from_numpy(np.column_stack([MU, GAMMA]))[None]
    z = torch.from_numpy(points)
    scores = energy(z, frame, torch.tensor([KAPPA]).double(), torch.tensor([[beta]]).double())[:, 0].numpy()
    # On the sphere κ cos t + β sin² t is highest at t = 0, or where cos t = κ / 2β if that is less than 1.
    cosine = min(1.0, KAPPA / (2 * beta)) if beta else 1.0
    highest = KAPPA * cosine + beta * (1 - cosine**2) - np.log(KAPPA + beta)
    return np.asarray(np.exp(scores - highest))


def visible() -> tuple[Array, NDArray[np.bool_]]:
    """Points of the near half of the sphere by pixel [P, P, 3], and whether a pixel is on it; seen from above μ."""
    u = np.linspace(-1.02, 1.02, PIXELS)
    right, up = np.meshgrid(u, u)
    near = 1 - right**2 - up**2
    inside = near >= 0
    seen = np.stack([right, up, np.sqrt(np.maximum(near, 0))], axis=-1)
    tilt, turn = np.radians(20), np.radians(-20)
    around_x = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    around_z = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    turned = around_x @ around_z  # the sphere's axes on the screen
    return np.where(inside[..., None], seen, MU) @ turned, inside


def draw_sphere(axes: Axes, beta: float, name: str, points: Array, inside: NDArray[np.bool_]) -> None:
    value = np.where(inside, density(points.reshape(-1, 3), beta).reshape(inside.shape), np.nan)
    extent = (-1.02, 1.02, -1.02, 1.02)
    axes.imshow(value, origin="lower", extent=extent, cmap="Blues", vmin=0, vmax=1.15, interpolation="bilinear")
    axes.contour(np.nan_to_num(value), LEVELS, origin="lower", extent=extent, colors="#0B3C5D", linewidths=0.8)
    graticule = np.where(inside[..., None], points, np.nan)
    for k, line in enumerate(("-", "-", ":")):
        circle = np.nan_to_num(graticule[..., k], nan=9.0)
        axes.contour(circle, [0.0], extent=extent, colors="#999999", linewidths=0.4, linestyles=line)
    edge = np.linspace(0, 2 * np.pi, 300)
    axes.plot(np.cos(edge), np.sin(edge), color="#555555", linewidth=1.0)
    for direction, label in ((MU, "μ"), (GAMMA, "γ")):
        row, column = np.unravel_index(np.argmax(np.where(inside, points @ direction, -2)), inside.shape)
        x, y = np.linspace(-1.02, 1.02, PIXELS)[[column, row]]
        axes.plot(x, y, "o", color="#D55E00", markersize=3.5)
        axes.annotate(label, (x, y), xytext=(4, 4), textcoords="offset points", color="#D55E00", fontsize=12)
    axes.set_title(f"β = {beta:g}\n{name}", fontsize=11)
    axes.set_axis_off()
    axes.set_aspect("equal")


def spheres() -> Figure:
    figure = Figure(figsize=(10.4, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    points, inside = visible()
    for axes, beta, name in zip(figure.subplots(1, len(BETAS)), BETAS, NAMES, strict=True):
        draw_sphere(axes, beta, name, points, inside)
    return figure


def profiles() -> Figure:
    """The density on the great circle through μ and γ, and on the one across it."""
    figure = Figure(figsize=(8.2, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    degrees = np.linspace(-120, 120, 481)
    t = np.radians(degrees)
    sides = (("along γ", GAMMA), ("across γ", np.array([0.0, 1.0, 0.0])))
    for axes, (title, side) in zip(figure.subplots(1, 2, sharey=True), sides, strict=True):
        circle = np.cos(t)[:, None] * MU + np.sin(t)[:, None] * side
        for beta, colour, width in zip(BETAS, COLOURS, (1.2, 1.5, 1.8, 2.1), strict=True):
            axes.plot(degrees, density(circle, beta), color=colour, linewidth=width, label=f"β = {beta:g}")
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("angle from μ, degrees")
        axes.set_xticks([-90, -45, 0, 45, 90])
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("density, highest = 1")
    figure.axes[1].legend(frameon=False, fontsize=10)
    return figure


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    spheres().savefig(OUT / "kent-spheres.png", dpi=110, bbox_inches="tight")
    profiles().savefig(OUT / "kent-profiles.png", dpi=130)


if __name__ == "__main__":
    main()
