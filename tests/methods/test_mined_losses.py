"""Losses that weigh or choose pairs by how hard they are, against loops: DDBH, DNcH, DAGtH.

What chooses or weighs takes no gradient: the loops take it from `fixed` outputs, the differences from moved ones.
"""

import math

import numpy as np
import pytest
import torch
from loss_cases import ITEMS, LABELS, Array, agree, cosine, outputs, similar, tensor
from numpy.typing import NDArray

from kenthash.losses.adaptive_triplet import adaptive_triplet
from kenthash.losses.boundary import boundary
from kenthash.losses.neighbour_contrast import neighbour_contrast

every_batch = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())


def slow_boundary(a: Array, b: Array, fixed: Array, s: NDArray[np.bool_]) -> float:
    bits = a.shape[1]
    top, rows = bits / 4, []
    for i in range(len(a)):
        near = sorted(float(fixed[i] @ b[j]) for j in range(len(b)) if s[i, j])
        far = sorted(float(fixed[i] @ b[j]) for j in range(len(b)) if not s[i, j])
        if not near or not far:
            continue
        mean_near = min(max(sum(near) / len(near), 0.0), top)
        mean_far = min(max(sum(far) / len(far), 0.0), top)
        worst_far = far[int(len(far) * 0.9) :]
        worst_near = near[::-1][int(len(near) * 0.9) :]
        upper = mean_near - (top - mean_near) / top * abs(mean_near - sum(worst_far) / len(worst_far))
        lower = mean_far - mean_far / top * abs(mean_far - sum(worst_near) / len(worst_near))
        near_losses, far_losses = [], []
        for j in range(len(b)):
            u = float(a[i] @ b[j])
            if s[i, j]:
                width = bits / 6 if u > upper else bits / 12
                near_losses.append(math.log1p(math.exp(-math.log(99) * (u - upper) / width)))
            else:
                width = bits / 6 if u < lower else bits / 12
                far_losses.append(math.log1p(math.exp(math.log(99) * (u - lower) / width)))
        rows.append(sum(near_losses) / len(near_losses) + sum(far_losses) / len(far_losses))
    return sum(rows) / len(rows) if rows else 0.0


@every_batch
def test_boundary(labels: Array) -> None:
    a, b, s = outputs(0), outputs(1), similar(labels)
    agree(lambda m: boundary(m, tensor(b), torch.from_numpy(s)), lambda m: slow_boundary(m, b, a, s), a)


def test_boundary_takes_the_hardest_tenth_of_many() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (6, 16)), rng.uniform(-1, 1, (61, 16))
    s = rng.random((6, 61)) < 0.5
    fast = boundary(tensor(a), tensor(b), torch.from_numpy(s)).item()
    assert fast == pytest.approx(slow_boundary(a, b, a, s), rel=1e-12)


def slow_contrast(a: Array, b: Array, fixed: Array, classes: Array, labels: Array, s: NDArray[np.bool_]) -> float:
    rows = []
    for i in range(len(a)):
        if not labels[i].any():
            continue
        known = [cosine(fixed[i], v) for v in b]
        near = [known[j] for j in range(len(b)) if s[i, j]]
        far = [known[j] for j in range(len(b)) if not s[i, j]]
        p = n = 0.0
        for j, c in enumerate(known):
            e = math.exp(cosine(a[i], b[j]) / 0.3)
            if s[i, j] and any(c - 0.5 < f for f in far):
                p += e * math.exp(-1 - c) ** 0.25
            if not s[i, j] and any(c + 0.5 > f for f in near):
                n += e * math.exp(-1 + c)
        own = int(labels[i].sum())
        for k in range(len(classes)):
            c, e = cosine(fixed[i], classes[k]), math.exp(cosine(a[i], classes[k]) / 0.3)
            if labels[i, k]:
                p += len(near) / own * e * math.exp(-1 - c) ** 0.25
            else:
                n += len(far) / (len(classes) - own) * e * math.exp(-1 + c)
        rows.append(-math.log(p / (p + n)))
    return sum(rows) / len(rows)


@every_batch
def test_neighbour_contrast(labels: Array) -> None:
    a, b, s = outputs(0), outputs(1), similar(labels)
    classes = outputs(2, labels.shape[1])

    def fast(m: torch.Tensor) -> torch.Tensor:
        return neighbour_contrast(m, tensor(b), tensor(classes), tensor(labels), torch.from_numpy(s))

    agree(fast, lambda m: slow_contrast(m, b, a, classes, labels, s), a)


def test_easy_pairs_are_left_out_of_the_contrast() -> None:
    """Two tight groups at right angles: all pairs are easy, so moving the items changes nothing but the class part."""
    a = tensor(np.array([[1, 0.01], [1, -0.01], [0.01, 1], [-0.01, 1]]))
    labels = tensor(np.array([[1, 0], [1, 0], [0, 1], [0, 1]]))
    s = labels @ labels.T > 0
    items = tensor(a.numpy(), grad=True)
    torch.autograd.backward(neighbour_contrast(a, items, tensor(np.eye(2)), labels, s))
    assert items.grad is not None and not items.grad.any()


def slow_triplet(a: Array, b: Array, fixed: Array, positive: NDArray[np.bool_], negative: NDArray[np.bool_]) -> float:
    triplets = [
        (i, p, n)
        for i in range(len(a))
        for p in range(len(b))
        for n in range(len(b))
        if positive[i, p] and negative[i, n]
    ]
    if not triplets:
        return 0.0
    gaps = [cosine(fixed[i], b[p]) - cosine(fixed[i], b[n]) for i, p, n in triplets]
    margin = min(max(sum(gaps) / len(gaps) / 2, 0.0), 0.5)
    mined = [t for t, gap in zip(triplets, gaps, strict=True) if gap <= margin]
    losses = [-cosine(a[i], b[p]) + cosine(a[i], b[n]) + margin for i, p, n in mined]
    return sum(losses) / max(len(losses), 1)


@every_batch
@pytest.mark.parametrize("pull", [0.0, 2.0], ids=["no margin", "a margin"])
def test_adaptive_triplet(labels: Array, pull: float) -> None:
    """`pull` draws items of a class together, so that the mean gap and with it the margin is above 0."""
    centres = np.random.default_rng(5).standard_normal((labels.shape[1], 5))
    a, b = (outputs(seed) + pull * labels @ centres for seed in (0, 1))
    s = similar(labels)
    others = s & ~np.eye(ITEMS, dtype=bool)

    def fast(m: torch.Tensor) -> torch.Tensor:
        return adaptive_triplet(m, tensor(b), torch.from_numpy(others), torch.from_numpy(~s))

    agree(fast, lambda m: slow_triplet(m, b, a, others, ~s), a)
