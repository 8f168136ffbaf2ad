"""The AP loss against its formula in loops, against a ranking of true codes, and at odd batches."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.autograd import gradcheck

from kenthash.losses.average_precision import average_precision_loss, binned_gradient, compiled_gradient

Array = NDArray[Any]


def slow(queries: Array, items: Array, relevant: Array, counted: Array) -> float:
    """The docstring's formula, with one triangular kernel per bin, in loops."""
    bits, precisions = queries.shape[1], []
    for i in range(len(queries)):
        hits, everything = np.zeros(bits + 1), np.zeros(bits + 1)
        for j in range(len(items)):
            distance = (bits - queries[i] @ items[j]) / 2
            for level in range(bits + 1):
                weight = max(0.0, 1 - abs(distance - level)) * counted[i, j]
                everything[level] += weight
                hits[level] += weight * relevant[i, j]
        if hits.sum() > 0:
            levels = [level for level in range(bits + 1) if hits[level] > 0]
            total = sum(hits[n] * hits[: n + 1].sum() / everything[: n + 1].sum() for n in levels)
            precisions.append(total / hits.sum())
    return 1 - np.mean(precisions) if precisions else 0.0


def case(seed: int, queries: int = 6, items: int = 9, bits: int = 5) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(-1, 1, (queries, bits)), rng.uniform(-1, 1, (items, bits))
    relevant, counted = rng.random((queries, items)) < 0.4, rng.random((queries, items)) < 0.8
    relevant[0] = False  # a query that nothing is relevant to
    return u, v, relevant, counted


@pytest.mark.parametrize("seed", range(4))
def test_is_the_formula(seed: int) -> None:
    u, v, relevant, counted = case(seed)
    tensors = [torch.from_numpy(a) for a in (u, v, relevant, counted)]
    assert average_precision_loss(*tensors).item() == pytest.approx(slow(u, v, relevant, counted), abs=1e-12)
    u, v = np.sign(u), np.sign(v)  # whole distances, the last of them among them
    v[0] = -u[1]
    tensors = [torch.from_numpy(a) for a in (u, v, relevant)]
    every = np.ones_like(relevant)
    assert average_precision_loss(*tensors).item() == pytest.approx(slow(u, v, relevant, every), abs=1e-12)


def test_gradient() -> None:
    u, v, relevant, counted = (torch.from_numpy(a) for a in case(5))
    u, v = u.requires_grad_(), v.requires_grad_()
    assert gradcheck(lambda a, b: average_precision_loss(a, b, relevant, counted), (u, v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_ways_agree(dtype: torch.dtype) -> None:
    u, v, relevant, counted = (torch.from_numpy(a) for a in case(7, 40, 60, 16))
    distances = ((16 - u @ v.T) / 2).to(dtype)
    for fast, plain in zip(
        compiled_gradient(distances, relevant & counted, counted, 16),
        binned_gradient(distances, relevant & counted, counted, 16),
        strict=True,
    ):
        assert fast.dtype == plain.dtype == dtype
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-6)


def test_a_perfect_ranking_costs_nothing_and_no_relevant_item_gives_zero() -> None:
    codes = torch.tensor([[1.0, 1, 1, 1], [-1, -1, -1, -1]])
    assert average_precision_loss(codes, codes, torch.eye(2, dtype=torch.bool)).item() == 0
    wrong = average_precision_loss(codes, codes, ~torch.eye(2, dtype=torch.bool)).item()
    assert wrong == pytest.approx(0.5)  # the one relevant item comes second of two
    lone = codes.clone().requires_grad_()
    nothing = average_precision_loss(lone, codes, torch.zeros(2, 2, dtype=torch.bool))
    torch.autograd.backward(nothing)
    assert nothing.item() == 0 and lone.grad is not None and not lone.grad.any()
