"""The terms of UCCH against loops, and its memory against hand-made cases."""

from math import exp, log, sqrt

import numpy as np
import pytest
import torch
from loss_cases import BITS, ITEMS, Array, agree, cosine, outputs, tensor
from torch.nn.functional import normalize

from kenthash.losses.cross_ranking import cross_ranking
from kenthash.losses.memory_contrast import code_contrast
from kenthash.methods import METHODS, Batch, Shapes, settings_of

TAU = 0.9


def codes(seed: int, rows: int) -> Array:
    return np.where(outputs(seed, rows) >= 0, 1.0, -1.0)


@pytest.mark.parametrize("among", ["the batch", "others"])
def test_code_contrast(among: str) -> None:
    own, drawn = codes(1, ITEMS), codes(2, 9)

    def slow(h: Array) -> float:
        total = 0.0
        for i in range(ITEMS):
            rows = np.delete(own, i, 0) if among == "the batch" else drawn
            scores = [exp(float(h[i] @ code) / np.linalg.norm(h[i]) / (TAU * sqrt(BITS))) for code in (own[i], *rows)]
            total -= log(scores[0] / sum(scores)) / ITEMS
        return total

    others = None if among == "the batch" else tensor(drawn)
    agree(lambda h: code_contrast(h, tensor(own), TAU, others), slow, outputs(0))


@pytest.mark.parametrize(("margin", "shift"), [(0.2, 0.1), (0.6, 1.0), (0.0, 0.0)])
def test_cross_ranking(margin: float, shift: float) -> None:
    t = outputs(5)

    def slow(x: Array) -> float:
        total = 0.0
        for i in range(ITEMS):
            own = cosine(x[i], t[i])
            for line in ([cosine(x[i], t[j]) for j in range(ITEMS)], [cosine(x[j], t[i]) for j in range(ITEMS)]):
                total += margin - own + log(sum(exp(c - (0 if c >= own - margin else shift)) for c in line))
        return total / ITEMS

    agree(lambda x: cross_ranking(x, tensor(t), margin, shift), slow, outputs(4))
    agree(lambda x: cross_ranking(tensor(t), x, margin, shift), slow, outputs(4))  # it is symmetric


def test_memory_is_the_batch_in_the_first_epoch_and_then_a_moving_average() -> None:
    method = METHODS["ucch"](Shapes(0, BITS, 3, 3, 4), settings_of(METHODS["ucch"], {}))
    memory = method.get_buffer("memory")

    def batch(seed: int, items: list[int]) -> Batch:
        x, t = (torch.tensor(outputs(seed + side, len(items)), dtype=torch.float32) for side in (0, 1))
        rows = torch.tensor(items)
        return Batch(x, t, torch.zeros(len(items), 0), x, t, rows, torch.ones(len(items), dtype=torch.bool))

    def direction(b: Batch) -> torch.Tensor:
        return normalize(normalize(b.x) + normalize(b.t))

    first, second, third = batch(0, [0, 1]), batch(2, [2, 3]), batch(4, [1, 3])
    for b in (first, second):
        method.terms(b)
    torch.testing.assert_close(memory, torch.cat([direction(first), direction(second)]))
    method.terms(third)
    for place, old in ((0, direction(first)[1]), (1, direction(second)[1])):
        moved = 0.4 * old + 0.6 * direction(third)[place]
        torch.testing.assert_close(memory[[1, 3][place]], moved / moved.norm())
    torch.testing.assert_close(memory[[0, 2]], torch.stack([direction(first)[0], direction(second)[0]]))
