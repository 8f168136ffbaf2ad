"""Planes, ellipses, travels and t-SNE."""

import sys

import numpy as np
import pytest

from kenthash.analysis.plane import (
    ellipse,
    kent_covariance,
    neighbour_agreement,
    principal_plane,
    squared_distances,
    travel,
    tsne,
)
from kenthash.errors import KenthashError, UsageError


def test_the_plane_keeps_what_lies_in_it() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((7, 2)))[0]
    points = rng.standard_normal((3, 20, 2)) @ basis.T + 5.0
    plane = principal_plane(points)
    assert plane.explained == pytest.approx(1)
    seen = plane.project(points)
    assert seen.shape == (3, 20, 2)
    assert squared_distances(seen.reshape(-1, 2)) == pytest.approx(squared_distances(points.reshape(-1, 7)), abs=1e-9)


def test_a_kent_ellipse_is_long_along_its_axis() -> None:
    """κ = 4, β = 2 on e2: variance 1/4 + 2·2/16 = 1/2 along e2, 1/4 along e3, none along μ = e1."""
    mean, axes = np.eye(3)[0], np.eye(3)[:, [1]]
    covariance = kent_covariance(mean, axes, 4.0, np.array([2.0]))
    assert covariance == pytest.approx(np.diag([0, 0.5, 0.25]))
    plane = principal_plane(np.array([[0, 1, 2], [0, -1, -2], [0, 1, -2], [0, -1, 2.0]]))  # of e3 and e2
    width, height, angle = ellipse(covariance, plane)
    assert (width, height) == pytest.approx((2 * np.sqrt(0.5), 2 * np.sqrt(0.25)))
    assert abs(angle) == pytest.approx(90)  # e2 is the plane's second axis


def test_travel_by_hand() -> None:
    moved = travel(np.array([[0.0], [6.0], [11.0], [10.0], [10.0]]))
    assert (moved.length, moved.displacement, moved.late_step) == pytest.approx((12, 10, 0))
    assert moved.settled == 2  # 11 is within a tenth of 10, 6 is not


def test_blobs_stay_blobs() -> None:
    rng = np.random.default_rng(0)
    kinds = np.repeat(np.arange(3), 30)
    points = 6 * np.eye(8)[kinds] + rng.standard_normal((90, 8)) * 0.5
    plane = tsne(points, perplexity=10)
    assert neighbour_agreement(plane, kinds) > 0.95
    assert np.array_equal(plane, tsne(points, perplexity=10))
    assert tsne(points[:4]).shape == (4, 2)  # the fewest; the perplexity gives way
    with pytest.raises(UsageError, match="t-SNE of 3 points"):
        tsne(points[:3])


def test_tsne_without_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(KenthashError, match=r"pip install 'kenthash\[study\]'$"):
        tsne(np.eye(8))


def test_agreement_by_hand() -> None:
    line = np.array([[0.0], [1.0], [2.1], [10.0]])
    # nearest of each: 1, 0, 1, 2; the point of kind -1 is left out, and is of no other point's kind
    assert neighbour_agreement(line, np.array([0, 0, 1, -1]), neighbours=1) == pytest.approx(2 / 3)
    assert np.isnan(neighbour_agreement(line, np.full(4, -1)))
