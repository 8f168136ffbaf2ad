"""Paths and shapes of proxies in a plane: principal components, and a Kent distribution's ellipse there."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

    The sign of a component is free; here its largest entry is positive, so that the same points give the same picture.
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
    """(width, height, angle in degrees) of the one-deviation ellipse of `covariance` [K, K] seen in the plane."""
    values, vectors = np.linalg.eigh(plane.axes @ covariance @ plane.axes.T)
    width, height = 2 * np.sqrt(np.maximum(values[::-1], 0))
    return float(width), float(height), float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))


@dataclass(frozen=True)
class Travel:
    """How one proxy went through training."""

    length: float  # of the whole path
    displacement: float  # from start to end
    settled: int  # first epoch from which on it stays within a tenth of its displacement from where it ends
    late_step: float  # mean step of the last quarter of training


def travel(path: NDArray[np.floating]) -> Travel:
    """Of a path [T+1, K], one position an epoch, the first before training."""
    positions = np.asarray(path, np.float64)
    steps = np.linalg.norm(np.diff(positions, axis=0), axis=1)
    left = np.linalg.norm(positions - positions[-1], axis=1)
    away = np.flatnonzero(left > 0.1 * left[0])
    last = steps[-max(1, len(steps) // 4) :]
    return Travel(float(steps.sum()), float(left[0]), int(away[-1]) + 1 if len(away) else 0, float(last.mean()))
