"""Shared by the tests of losses: random cases, the odd batches, and gradients by central differences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]

ITEMS, CLASSES, BITS = 7, 4, 5

LABELS = {
    "mixed": np.array(
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 1]]
    ),
    "all similar": np.array([[1, 0, 0, 0]] * ITEMS),
    "none similar": np.eye(ITEMS, dtype=int),
    "all labels": np.ones((ITEMS, CLASSES), int),
    "a sample without labels": np.array([[0, 0, 0, 0]] + [[1, 0, 1, 0]] * 3 + [[0, 1, 0, 0]] * 3),
}


def outputs(seed: int, rows: int = ITEMS, bits: int = BITS) -> Array:
    """Values in (−0.9, 0.9) like a tanh head's."""
    return np.random.default_rng(seed).uniform(-0.9, 0.9, (rows, bits))


def similar(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.array([[bool((a * b).sum() > 0) for b in labels] for a in labels])


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def tensor(values: Array, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def numeric_gradient(loss: Callable[[Array], float], at: Array, step: float = 1e-6) -> Array:
    gradient = np.zeros_like(at)
    for index in np.ndindex(*at.shape):
        moved = at.copy()
        moved[index] += step
        above = loss(moved)
        moved[index] -= 2 * step
        gradient[index] = (above - loss(moved)) / (2 * step)
    return gradient


def agree(fast: Callable[[Tensor], Tensor], slow: Callable[[Array], float], at: Array) -> None:
    """The value and the gradient of `fast` are those of `slow`, which holds fixed what takes no gradient."""
    point = tensor(at, grad=True)
    value = fast(point)
    torch.autograd.backward(value)
    assert point.grad is not None
    np.testing.assert_allclose(value.item(), slow(at), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(point.grad.numpy(), numeric_gradient(slow, at), rtol=1e-5, atol=1e-7)
