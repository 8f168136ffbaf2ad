"""Proxies and samples in a plane: principal components, t-SNE, ellipses of Kent distributions, and paths."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import KenthashError, UsageError
from kenthash.evaluation import Scores


@dataclass(frozen=True)
class Plane:
    centre: Scores  # [K]
    axes: Scores  # [2, K], orthonormal
    explained: float  # share of the variance that the plane keeps

    def project(self, points: NDArray[np.floating]) -> Scores:
        """[..., K] to [..., 2]."""
        return np.asarray((points - self.centre) @ self.axes.T)


def principal_plane(points: NDArray[np.floating]) -> Plane:
    """The plane of the two largest principal components of `points` [N, K].

    The sign of a component is free; here its largest entry is positive, so that the same points give the same plane.
    """
    flat = np.asarray(points, np.float64).reshape(-1, points.shape[-1])
    centre = flat.mean(axis=0)
    _, sizes, axes = np.linalg.svd(flat - centre, full_matrices=False)
    axes = axes[:2] * np.sign(axes[[0, 1], np.abs(axes[:2]).argmax(axis=1)])[:, None]
    total = float(np.square(sizes).sum())
    return Plane(centre, axes, float(np.square(sizes[:2]).sum() / total) if total > 0 else 1.0)


def kent_covariance(
    mean: NDArray[np.floating], axes: NDArray[np.floating], concentration: float, shape: NDArray[np.floating]
) -> Scores:
    """Covariance [K, K] of a Kent distribution in the tangent space at μ, to first order in β/κ.

        (1/κ) (I − μμᵀ) + (2/κ²) Σ_i β_i γ_i γ_iᵀ

    Near μ the density along γ_i is normal with variance 1/(κ − 2β_i), which the paper's unbounded β can make negative;
    the first two terms of its series stay positive and agree where β is small. Without axes it is von Mises-Fisher's.
    """
    identity = np.eye(len(mean)) - np.outer(mean, mean)
    stretch = (axes * shape) @ axes.T  # axes [K, A]
    return np.asarray(identity / concentration + 2 * stretch / concentration**2)


def ellipse(covariance: NDArray[np.floating], plane: Plane) -> tuple[float, float, float]:
    """(width, height, angle in degrees) of the one-deviation ellipse of `covariance` [K, K] projected to the plane."""
    values, vectors = np.linalg.eigh(plane.axes @ covariance @ plane.axes.T)
    width, height = 2 * np.sqrt(np.maximum(values[::-1], 0))
    return float(width), float(height), float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))


def tsne(points: NDArray[np.floating], perplexity: float = 30.0) -> Scores:
    """[N, 2] from [N, K] by t-SNE (van der Maaten & Hinton, JMLR 2008) with Euclidean distances; pass unit vectors to
    compare by cosines.

    All pairs are computed, and the layout starts from the two principal components (Kobak & Berens, Nature
    Communications 2019), so that the same points give the same layout. On about 800 points of 64 dimensions this takes
    about 10 s of processor time, less than the approximate Barnes-Hut method takes.
    """
    if len(points) < 4:
        raise UsageError(f"t-SNE of {len(points)} points shows nothing: give at least 4")
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise KenthashError("t-SNE needs scikit-learn: pip install 'kenthash[study]'") from error

    layout = TSNE(perplexity=min(perplexity, (len(points) - 1) / 3), method="exact", init="pca", random_state=0)
    return np.asarray(layout.fit_transform(np.asarray(points, np.float64)), np.float64)


def squared_distances(points: Scores) -> Scores:
    """[N, N] Euclidean distances, squared, of points [N, K]."""
    squares = np.square(points).sum(axis=1)
    return np.asarray(np.maximum(squares[:, None] + squares[None, :] - 2 * points @ points.T, 0.0))


def neighbour_agreement(points: NDArray[np.floating], kinds: NDArray[np.integer], neighbours: int = 10) -> float:
    """Share of each point's nearest `neighbours` that are of its kind, mean over points of kind ≥ 0.

    A point of kind −1 has no kind: it is left out of the mean, and as a neighbour it counts as another kind.
    """
    distances = squared_distances(np.asarray(points, np.float64))
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : min(neighbours, len(points) - 1)]
    own = kinds >= 0
    if not own.any():
        return float("nan")
    return float((kinds[nearest[own]] == kinds[own, None]).mean())


@dataclass(frozen=True)
class Travel:
    """The path of one proxy through training."""

    length: float  # of the whole path
    displacement: float  # from start to end
    settled: int  # first epoch from which it stays within a tenth of its displacement from its end
    late_step: float  # mean step of the last quarter of training


def travel(path: NDArray[np.floating]) -> Travel:
    """Of a path [T+1, K]: the position before training, then one per epoch."""
    positions = np.asarray(path, np.float64)
    steps = np.linalg.norm(np.diff(positions, axis=0), axis=1)
    left = np.linalg.norm(positions - positions[-1], axis=1)
    away = np.flatnonzero(left > 0.1 * left[0])
    last = steps[-max(1, len(steps) // 4) :]
    return Travel(float(steps.sum()), float(left[0]), int(away[-1]) + 1 if len(away) else 0, float(last.mean()))
