"""Planes, ellipses, travels and t-SNE."""

import numpy as np
import pytest

from kenthash.analysis.plane import ellipse, kent_covariance, principal_plane, travel
from kenthash.analysis.tsne import gradient, joint_probabilities, neighbour_agreement, squared_distances, tsne


def test_the_plane_keeps_what_lies_in_it():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((7, 2)))[0]
    points = rng.standard_normal((3, 20, 2)) @ basis.T + 5.0
    plane = principal_plane(points)
    assert plane.explained == pytest.approx(1)
    seen = plane.project(points)
    assert seen.shape == (3, 20, 2)
    assert squared_distances(seen.reshape(-1, 2)) == pytest.approx(squared_distances(points.reshape(-1, 7)), abs=1e-9)


def test_a_kent_ellipse_is_long_along_its_axis():
    """κ = 4, β = 2 on e2: variance 1/4 + 2·2/16 = 1/2 along e2, 1/4 along e3, none along μ = e1."""
    mean, axes = np.eye(3)[0], np.eye(3)[:, [1]]
    covariance = kent_covariance(mean, axes, 4.0, np.array([2.0]))
    assert covariance == pytest.approx(np.diag([0, 0.5, 0.25]))
    plane = principal_plane(np.array([[0, 1, 2], [0, -1, -2], [0, 1, -2], [0, -1, 2.0]]))  # of e3 and e2
    width, height, angle = ellipse(covariance, plane)
    assert (width, height) == pytest.approx((2 * np.sqrt(0.5), 2 * np.sqrt(0.25)))
    assert abs(angle) == pytest.approx(90)  # e2 is the plane's second axis


def test_travel_by_hand():
    moved = travel(np.array([[0.0], [6.0], [11.0], [10.0], [10.0]]))
    assert (moved.length, moved.displacement, moved.late_step) == pytest.approx((12, 10, 0))
    assert moved.settled == 2  # 11 is within a tenth of 10, 6 is not


def test_rows_have_the_perplexity_asked_for():
    points = np.random.default_rng(1).standard_normal((60, 5))
    p = joint_probabilities(points, perplexity=10)
    assert p == pytest.approx(p.T) and p.sum() == pytest.approx(1) and (np.diag(p) == 0).all()
    # Points on a circle are all alike, so each row of the joint is a conditional one, divided by N.
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    rows = joint_probabilities(np.column_stack([np.cos(angle), np.sin(angle)]), perplexity=10) * 40
    entropy = -(rows * np.log(np.maximum(rows, 1e-300))).sum(axis=1)
    assert np.exp(entropy) == pytest.approx(10, rel=1e-6)


def test_the_gradient_is_that_of_the_divergence():
    rng = np.random.default_rng(2)
    p, y = joint_probabilities(rng.standard_normal((12, 4)), 3), rng.standard_normal((12, 2))

    def divergence(y):
        weights = 1 / (1 + squared_distances(y))
        np.fill_diagonal(weights, 0)
        q = weights / weights.sum()
        pairs = p > 0
        return float((p[pairs] * np.log(p[pairs] / q[pairs])).sum())

    slope = np.zeros_like(y)
    for place in np.ndindex(*y.shape):
        step = np.zeros_like(y)
        step[place] = 1e-5
        slope[place] = (divergence(y + step) - divergence(y - step)) / 2e-5
    assert gradient(p, y) == pytest.approx(slope, abs=1e-7)


def test_blobs_stay_blobs():
    rng = np.random.default_rng(0)
    kinds = np.repeat(np.arange(3), 30)
    points = 6 * np.eye(8)[kinds] + rng.standard_normal((90, 8)) * 0.5
    plane = tsne(points, perplexity=10, rounds=400)
    assert neighbour_agreement(plane, kinds) > 0.95
    assert np.array_equal(plane, tsne(points, perplexity=10, rounds=400))


def test_agreement_by_hand():
    line = np.array([[0.0], [1.0], [2.1], [10.0]])
    # nearest of each: 1, 0, 1, 2; kind -1 asks for nothing and agrees with nobody
    assert neighbour_agreement(line, np.array([0, 0, 1, -1]), neighbours=1) == pytest.approx(2 / 3)
    assert np.isnan(neighbour_agreement(line, np.full(4, -1)))
