"""Exact t-SNE (van der Maaten & Hinton, JMLR 2008) for about a thousand points.

    minimise KL(P ‖ Q),  p_ij from Gaussians of given perplexity in the space, q_ij ∝ 1/(1 + ‖y_i − y_j‖²) in the plane

All pairs are computed: at this size that is a few seconds, and the result is the same at every run. It starts from
the two principal components (Kobak & Berens, Nature Communications 2019), with no random draw.
"""

import numpy as np
from numpy.typing import NDArray

from kenthash.analysis.plane import principal_plane
from kenthash.errors import UsageError
from kenthash.evaluation import Scores

TINY = 1e-12
EXAGGERATION, EXAGGERATED = 12.0, 250  # P times 12 in the first 250 rounds


def tsne(points: NDArray[np.floating], perplexity: float = 30.0, rounds: int = 750) -> Scores:
    """[N, 2] from [N, K] by Euclidean distances; give unit vectors to have it by cosines."""
    n = len(points)
    if n < 4:
        raise UsageError(f"t-SNE of {n} points shows nothing: give at least 4")
    p = joint_probabilities(points, min(perplexity, (n - 1) / 3))
    y = principal_plane(points).project(points)
    y *= 1e-4 / max(float(y[:, 0].std()), TINY)
    rate = max(n / EXAGGERATION / 4, 50.0)  # Belkina et al., Nature Communications 2019
    velocity, gain = np.zeros_like(y), np.ones_like(y)
    for number in range(rounds):
        early = number < EXAGGERATED
        slope = gradient(p * EXAGGERATION if early else p, y)
        same = np.sign(slope) == np.sign(velocity)
        gain = np.maximum(np.where(same, gain * 0.8, gain + 0.2), 0.01)
        velocity = (0.5 if early else 0.8) * velocity - rate * gain * slope
        y = y + velocity
        y -= y.mean(axis=0)
    return y


def joint_probabilities(points: NDArray[np.floating], perplexity: float) -> Scores:
    """p_ij = (p_{j|i} + p_{i|j}) / 2N, the width of each Gaussian found by bisection so that row i has the entropy
    log(perplexity)."""
    distances = squared_distances(np.asarray(points, np.float64))
    np.fill_diagonal(distances, np.inf)
    nearest = distances.min(axis=1, keepdims=True)
    shifted = np.where(np.isinf(distances), 0.0, distances - nearest)
    other = np.isfinite(distances)
    n = len(distances)
    precision, low, high = np.ones(n), np.zeros(n), np.full(n, np.inf)
    for _ in range(64):
        weights = np.exp(-shifted * precision[:, None]) * other
        total = weights.sum(axis=1)
        entropy = np.log(total) + precision * (weights * shifted).sum(axis=1) / total
        wide = entropy > np.log(perplexity)
        low, high = np.where(wide, precision, low), np.where(wide, high, precision)
        precision = np.where(np.isinf(high), precision * 2, (low + np.where(np.isinf(high), 0.0, high)) / 2)
    conditional = weights / total[:, None]
    return np.asarray((conditional + conditional.T) / (2 * n))


def gradient(p: Scores, y: Scores) -> Scores:
    """∂KL/∂y_i = 4 Σ_j (p_ij − q_ij)(y_i − y_j) / (1 + ‖y_i − y_j‖²)."""
    weights = 1 / (1 + squared_distances(y))
    np.fill_diagonal(weights, 0.0)
    pull = (p - weights / max(float(weights.sum()), TINY)) * weights
    return np.asarray(4 * (pull.sum(axis=1)[:, None] * y - pull @ y))


def squared_distances(points: Scores) -> Scores:
    squares = np.square(points).sum(axis=1)
    return np.asarray(np.maximum(squares[:, None] + squares[None, :] - 2 * points @ points.T, 0.0))


def neighbour_agreement(points: NDArray[np.floating], kinds: NDArray[np.integer], neighbours: int = 10) -> float:
    """Share of each point's nearest `neighbours` that are of its kind, mean over points of kind ≥ 0.

    Points of kind −1 have none of their own, and count as neighbours of another kind.
    """
    distances = squared_distances(np.asarray(points, np.float64))
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : min(neighbours, len(points) - 1)]
    own = kinds >= 0
    if not own.any():
        return float("nan")
    return float((kinds[nearest[own]] == kinds[own, None]).mean())
