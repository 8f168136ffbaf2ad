"""Losses of the methods since the paper's table against loops: DHaPH, DScPH, DPBE, DDWSH, RSHNL.

What weighs, mines or chooses takes no gradient: the loops take it from `fixed` values, the differences from moved ones.
"""

import math

import numpy as np
import pytest
import torch
from loss_cases import BITS, ITEMS, LABELS, Array, agree, cosine, outputs, similar, tensor
from torch.func import jacrev
from torch.nn.functional import normalize

from kenthash.methods.base import Batch, Shapes
from kenthash.methods.ddwsh import boundary_hinge, inverse_density, weighted_triplets
from kenthash.methods.dhaph import (
    CURVATURE,
    RADIUS,
    ball_distance,
    columns_drawn,
    gumbel_noise,
    hierarchy_hinge,
    neighbour_triplets,
    paced_contrast,
    to_ball,
)
from kenthash.methods.dpbe import Dpbe, curvature_of, label_affinity, output_variance, squared_inputs
from kenthash.methods.dpbe import Settings as DpbeSettings
from kenthash.methods.dscph import acute_products, f_score, semi_hard
from kenthash.methods.rshnl import paced, robust, robust_contrast

every_batch = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())


@every_batch
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_paced_contrast(labels: Array, share: float) -> None:
    a, b, s = outputs(0), outputs(1), similar(labels)

    def slow(moved: Array) -> float:
        rows = []
        for i in range(ITEMS):
            masses = {True: 0.0, False: 0.0}
            for j in range(ITEMS):
                c = cosine(a[i], b[j])
                weight = math.exp(-1 - c) ** (share / 4) if s[i, j] else math.exp(-1 + c) ** share
                masses[bool(s[i, j])] += weight * math.exp(cosine(moved[i], b[j]) / 0.3)
            if s[i].any():
                rows.append(-math.log(masses[True] / (masses[True] + masses[False])))
        return sum(rows) / len(rows)

    agree(lambda m: paced_contrast(m, tensor(b), torch.from_numpy(s), share, 0.3), slow, a)


def mobius_distance(x: Array, y: Array) -> float:
    """By Möbius addition, as it is defined (Ganea et al., NeurIPS 2018)."""
    c, xy, x2, y2 = CURVATURE, float(-x @ y), float(x @ x), float(y @ y)
    added = ((1 + 2 * c * xy + c * y2) * -x + (1 - c * x2) * y) / (1 + 2 * c * xy + c**2 * x2 * y2)
    return 2 / math.sqrt(c) * math.atanh(math.sqrt(c) * float(np.linalg.norm(added)))


def test_distances_in_the_ball() -> None:
    a, b = (to_ball(3 * tensor(outputs(seed))).numpy() for seed in (0, 1))
    assert (np.linalg.norm(a, axis=1) < 1 / math.sqrt(CURVATURE)).all()

    def slow(moved: Array) -> float:
        return sum(mobius_distance(x, y) * (1 + 0.1 * j) for x in moved for j, y in enumerate(b))

    factors = 1 + 0.1 * torch.arange(ITEMS, dtype=torch.float64)
    agree(lambda m: (ball_distance(m, tensor(b)) * factors).sum(), slow, a)
    assert ball_distance(tensor(a), tensor(a)).diagonal().max() < 1e-3


def test_vectors_enter_the_ball_no_farther_than_the_radius() -> None:
    """tanh(√c r)/√c in the direction of the vector, and its gradient is scaled by the metric."""
    root = math.sqrt(CURVATURE)
    u = tensor(np.array([[0.3, 0.4], [30.0, 40.0]]), grad=True)
    points = to_ball(u)
    for point, length in zip(points.detach().numpy(), (0.5, RADIUS), strict=True):
        np.testing.assert_allclose(point, np.array([0.6, 0.8]) * math.tanh(root * length) / root, rtol=1e-12)
    torch.autograd.backward((points[0] * tensor(np.array([0.6, 0.8]))).sum())
    assert u.grad is not None
    norm = math.tanh(root * 0.5) / root
    plain = 1 - math.tanh(root * 0.5) ** 2  # the slope of tanh(√c r)/√c by r
    np.testing.assert_allclose(u.grad[0].numpy(), np.array([0.6, 0.8]) * plain * (1 - CURVATURE * norm**2) ** 2 / 4)


def test_hierarchy_hinge() -> None:
    """The values are those of the ancestors that the noise draws; the gradient takes softmaxes for these choices."""
    rng = np.random.default_rng(0)
    points, nodes, number, margin, choice = 6, 5, 40, 0.1, 0.2
    at = rng.random((points, nodes))
    triplets = [rng.integers(points, size=number) for _ in range(3)]
    noise = rng.gumbel(size=(2, number, nodes))

    def chances(d: Array, n: int) -> tuple[Array, Array]:
        i, j, k = (d[rows[n]] for rows in triplets)
        logits = [noise[0, n] - np.maximum(i, j) / choice, noise[1, n] - np.maximum(np.maximum(i, j), k) / choice]
        own, joint = (np.exp(row) / np.exp(row).sum() for row in logits)
        return own, joint

    def slow(moved: Array) -> float:
        total = 0.0
        for n in range(number):
            (own, joint), (own_moved, joint_moved) = chances(at, n), chances(moved, n)
            p, q = own.argmax(), joint.argmax()
            soft = (own_moved - own) - (joint_moved - joint)
            for rows, sign in zip(triplets, (1, 1, -1), strict=True):
                item = rows[n]
                fixed = sign * (at[item, p] - at[item, q]) + margin
                if p != q and fixed > 0:
                    total += sign * (moved[item, p] - moved[item, q] + at[item] @ soft) + margin
        return total

    i, j, k = (torch.from_numpy(rows) for rows in triplets)
    agree(lambda d: hierarchy_hinge(d, (i, j, k), tensor(noise), margin, choice).sum(), slow, at)


def test_gumbel_noise() -> None:
    """The largest of logits and noise is drawn by their softmax."""
    torch.manual_seed(0)
    logits = torch.tensor([0.0, 1.0, 2.0])
    drawn = (logits + gumbel_noise(torch.empty(20_000, 3))).argmax(1)
    shares = torch.bincount(drawn, minlength=3) / len(drawn)
    torch.testing.assert_close(shares, logits.softmax(0), atol=0.02, rtol=0)


def test_triplets_are_of_mutual_neighbours() -> None:
    """Two groups far from each other: j is of the group of i, k of the other one; labels come before distances."""
    places = torch.tensor([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])
    distance = (places[:, None] - places).abs()
    i, j, k = neighbour_triplets(distance, None, 3, 20)
    assert i.tolist() == [n for n in range(6) for _ in range(20)]
    assert ((i < 3) == (j < 3)).all() and ((i < 3) != (k < 3)).all() and (i != j).all()
    parity = (torch.arange(6)[:, None] + torch.arange(6)) % 2 == 0
    i, j, k = neighbour_triplets(distance, parity, 3, 20)
    assert ((i - j) % 2 == 0).all() and ((i - k) % 2 == 1).all()
    assert not len(neighbour_triplets(distance, None, 6, 20)[0])  # all are neighbours: there is no k


def test_columns_are_drawn_with_the_same_chance() -> None:
    torch.manual_seed(0)
    table = torch.tensor([[True, False, True, True], [False, False, False, True]])
    columns = columns_drawn(table, 6000)
    shares = torch.stack([torch.bincount(row, minlength=4) for row in columns]) / 6000
    torch.testing.assert_close(shares, table / table.sum(1, keepdim=True), atol=0.03, rtol=0)


@every_batch
@pytest.mark.parametrize(("near", "above"), [(0.3, 0.3), (0.9, 0.7)])
def test_f_score(labels: Array, near: float, above: float) -> None:
    cosines = np.random.default_rng(0).uniform(-0.9, 0.89, (ITEMS, labels.shape[1]))
    cosines[1, 2], cosines[4, 1] = 0.95, 0.99  # near enough to count where it is a proxy of another class

    def slow(c: Array) -> float:
        right, missed, mistaken = 2.0, 0.0, 0.0
        for n, k in np.ndindex(*c.shape):
            if labels[n, k]:
                right += 2 * max(0.0, float(c[n, k]))
                missed += (1 - float(c[n, k])) * math.exp(1.3 * (1 - cosines[n, k]))
            elif cosines[n, k] > near:
                mistaken += (float(c[n, k]) - above) * math.exp(1.3 * (cosines[n, k] - 1))
        return 1 - right / (right + missed + mistaken)

    agree(lambda c: f_score(c, tensor(labels), near, above), slow, cosines)


@every_batch
def test_semi_hard_triplets_and_acute_products(labels: Array) -> None:
    a, s = outputs(0), similar(labels)
    others = s & ~np.eye(ITEMS, dtype=bool)

    def slow_triplets(m: Array) -> float:
        losses = []
        for i, p, n in np.ndindex(ITEMS, ITEMS, ITEMS):
            gap = cosine(a[i], a[p]) - cosine(a[i], a[n])
            if others[i, p] and not s[i, n] and 0 < gap <= 0.5:
                losses.append(cosine(m[i], m[n]) - cosine(m[i], m[p]) + 0.5)
        return sum(losses) / max(len(losses), 1)

    def slow_products(m: Array) -> float:
        pairs = [(i, j) for i in range(ITEMS) for j in range(ITEMS) if not s[i, j] and float(a[i] @ a[j]) > 0]
        return sum(float(m[i] @ m[j]) for i, j in pairs) / max(len(pairs), 1)

    positive, negative = torch.from_numpy(others), torch.from_numpy(~s)
    agree(lambda m: semi_hard(m, positive, negative, 0.5), slow_triplets, a)
    agree(lambda m: acute_products(m, negative), slow_products, a)


def test_curvature_and_the_noise_of_sampled_weights() -> None:
    """Against the derivatives by each weight, and a sum over weights."""
    rng = np.random.default_rng(0)
    features, weights = tensor(rng.standard_normal((ITEMS, 4))), tensor(rng.standard_normal((BITS, 5)))
    scaled = features / features.square().mean(1, keepdim=True).sqrt()
    given = torch.cat([scaled, torch.ones(ITEMS, 1, dtype=torch.float64)], dim=1)
    squares = squared_inputs(features)
    torch.testing.assert_close(squares, given.square())
    expected = torch.zeros_like(weights)
    for row in given:
        slopes = jacrev(lambda w, row=row: normalize(w @ row, dim=0))(weights)
        expected += slopes.square().sum(0) / ITEMS
    torch.testing.assert_close(curvature_of(given @ weights.T, squares), expected)
    curvature = tensor(rng.uniform(0, 50, (BITS, 5)))
    for n, k in np.ndindex(ITEMS, BITS):
        variance = sum(given[n, d].item() ** 2 / (curvature[k, d].item() + 1) for d in range(5))
        assert output_variance(squares, curvature)[n, k].item() == pytest.approx(variance)


def test_label_affinity() -> None:
    labels = tensor(np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]]))
    expected = [[0.9051, 0.7616, 0], [0.7616, 0.7616, 0], [0, 0, 0.4621]]
    np.testing.assert_allclose(label_affinity(labels).numpy(), expected, atol=1e-4)


@every_batch
def test_sampled_cosines_follow_those_of_labels(labels: Array) -> None:
    """DPBE's terms, with the noise that the method draws: pictures first, then texts."""
    samples, dims, start = 3, (6, 4), 20
    x, t = outputs(0), outputs(1)
    image, text = (np.random.default_rng(n).standard_normal((ITEMS, dim)) for n, dim in zip((2, 3), dims, strict=True))
    torch.manual_seed(5)
    noise = [torch.randn((samples, ITEMS, BITS), dtype=torch.float64).numpy() for _ in range(2)]

    def fast(moved: torch.Tensor, term: str) -> torch.Tensor:
        method = Dpbe(Shapes(labels.shape[1], BITS, *dims, items=start), DpbeSettings(samples=samples)).double()
        captioned = torch.ones(ITEMS, dtype=torch.bool)
        given = (tensor(labels), tensor(image), tensor(text), torch.arange(ITEMS), captioned)
        torch.manual_seed(5)
        return method.terms(Batch(moved, tensor(t), *given))[term]

    def sampled(values: Array, features: Array, drawn: Array) -> Array:
        """[S, B, K] by the definition: every weight, the bias too, has the variance 1 / (H + 1)."""
        result = np.zeros((samples, ITEMS, BITS))
        for s, i, k in np.ndindex(*result.shape):
            f = features[i] / math.sqrt(float((features[i] ** 2).mean()))
            variance = sum(value**2 / (start + 1) for value in [*f, 1.0])
            result[s, i, k] = math.atanh(values[i, k]) + math.sqrt(variance) * drawn[s, i, k]
        return result

    def loss(a: Array, b: Array) -> float:
        total = 0.0
        for s, i, j in np.ndindex(samples, ITEMS, ITEMS):
            wanted = 2 / (1 + math.exp(-float(labels[i] @ labels[j]))) - 1
            total += (cosine(a[s, i], b[s, j]) - wanted) ** 2
        return total / (samples * ITEMS**2)

    def slow(moved: Array, term: str) -> float:
        a, b = sampled(moved, image, noise[0]), sampled(t, text, noise[1])
        return loss(a, b) if term == "inter" else loss(a, a) + loss(b, b)

    agree(lambda m: fast(m, "inter"), lambda m: slow(m, "inter"), x)
    agree(lambda m: fast(m, "intra"), lambda m: slow(m, "intra"), x)


def test_boundary_hinge() -> None:
    rng = np.random.default_rng(0)
    near, far, beta = (rng.uniform(0.5, 1.8, 9) for _ in range(3))

    def slow(b: Array) -> float:
        losses = [max(0.0, n - x + 0.2) for n, x in zip(near, b, strict=True)]
        losses += [max(0.0, x - f + 0.2) for f, x in zip(far, b, strict=True)]
        return float(sum(losses) / sum(loss > 0 for loss in losses))

    agree(lambda b: boundary_hinge(tensor(near), tensor(far), b, 0.2), slow, beta)


def test_dissimilar_items_are_drawn_by_the_density_of_their_distance() -> None:
    """Inverse to the density on the sphere, which is flat in three dimensions but for d; and never a similar item."""
    distance = tensor(np.array([[0.1, 0.5, 1.0, 1.5]]))
    allowed = torch.tensor([[True, True, True, False]])
    chances = inverse_density(distance, 3, allowed)
    np.testing.assert_allclose(chances.numpy(), np.array([[2, 2, 1, 0]]) / 5)  # 1/d, of 0.5 at least
    four = inverse_density(distance, 4, torch.ones_like(allowed))[0]
    assert (four[1] / four[2]).item() == pytest.approx(1 / 0.5**2 / (1 - 0.5**2 / 4) ** 0.5 * (1 - 1 / 4) ** 0.5)


@every_batch
def test_weighted_triplets(labels: Array) -> None:
    s = similar(labels)
    distance = tensor(np.random.default_rng(0).uniform(0.3, 1.9, (ITEMS, ITEMS)))
    for seed in range(20):
        torch.manual_seed(seed)
        anchors, positives, negatives = weighted_triplets(distance, torch.from_numpy(s), 16)
        both = [i for i in range(ITEMS) if s[i].sum() > 1 and not s[i].all()]
        assert anchors.tolist() == [i for i in both if s[i, [j for j in range(ITEMS) if j != i]].any()]
        for a, p, n in zip(anchors.tolist(), positives.tolist(), negatives.tolist(), strict=True):
            assert s[a, p] and p != a and not s[a, n]


def test_robust_loss_lies_between_cross_entropy_and_error() -> None:
    p = tensor(np.array([0.01, 0.3, 0.9]))
    torch.testing.assert_close(robust(p, 1e-7), -p.log(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(robust(p, 1.0), 1 - p)


def test_items_that_fit_badly_count_less() -> None:
    losses = np.array([0.5, 3.9, 4.0, 7.0])

    def slow(moved: Array) -> float:
        total = 0.0
        for fixed, loss in zip(losses, moved, strict=True):
            w = max(0.0, 1 - fixed / 4)
            total += w * loss + 4 * (w**2 / 2 - w)
        return total

    agree(lambda m: paced(m, 4.0).sum(), slow, losses)


def test_robust_contrast() -> None:
    x, t = outputs(0), outputs(1)

    def slow(m: Array) -> float:
        rows = [*m, *t]
        total = 0.0
        for i, a in enumerate(rows):
            masses = [math.exp(cosine(a, b) / 0.7) for j, b in enumerate(rows) if j != i]
            own = math.exp(cosine(a, rows[(i + ITEMS) % len(rows)]) / 0.7) / sum(masses)
            total += 0.6 * (1 - own**0.4) / 0.4 + 0.4 * (1 - own)
        return 2 * total / len(rows)

    agree(lambda m: robust_contrast(m, tensor(t), 0.4, 0.7), slow, x)
