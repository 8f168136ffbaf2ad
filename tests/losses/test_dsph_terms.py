"""The terms that DSPH and other baselines need: the cosine proxy loss, its threshold, quantisation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from kenthash.errors import UsageError
from kenthash.losses.proxy_cosine import proxy_cosine
from kenthash.losses.quantisation import quantisation
from kenthash.losses.thresholds import DISTANCES, code_distance, code_threshold, griesmer_distance


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 8), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 999))
def test_proxy_cosine_in_loops(samples: int, classes: int, density: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(samples, classes, generator=generator) < density).double()
    cosines = torch.rand(samples, classes, generator=generator, dtype=torch.float64) * 2 - 1
    near, far = [], []
    for i in range(samples):
        for k in range(classes):
            c = cosines[i, k].item()
            if labels[i, k]:
                near.append(1 - c)
            else:
                far.append(max(0.0, c - 0.2))
    expected = sum(sum(part) / max(1, len(part)) for part in (near, far))
    assert proxy_cosine(cosines, labels, 0.2).item() == pytest.approx(expected, abs=1e-12)
    assert gradcheck(lambda c: proxy_cosine(c, labels, 0.2), (cosines.requires_grad_(),))


def test_threshold_of_known_codes() -> None:
    assert code_threshold(64, 80) == 0  # [64, 7, 32]
    assert code_threshold(16, 80) == pytest.approx(1 - 12 / 16)  # [16, 7, 6]
    assert code_threshold(32, 24) == 0  # [32, 5, 16], Reed-Muller
    assert code_threshold(128, 21) == 0
    assert code_threshold(64, 1) == code_threshold(64, 2) == -1  # two codes can be opposites
    assert [code_threshold(16, c) for c in (4, 5, 8, 9)] == pytest.approx([-0.25, 0, 0, 0])
    with pytest.raises(UsageError):
        code_threshold(64, 0)


@pytest.mark.parametrize("bits", DISTANCES)
def test_griesmer_bounds_the_table(bits: int) -> None:
    assert len(DISTANCES[bits]) == 10
    for dimension, distance in enumerate(DISTANCES[bits], start=1):
        bound = griesmer_distance(bits, dimension)
        assert code_distance(bits, dimension) == distance
        assert distance <= bound <= distance + 3
        assert bound == distance or dimension > 5


def test_griesmer_beyond_the_table() -> None:
    # Simplex codes [2^m − 1, m, 2^(m−1)] meet the bound; so does the Golay code's neighbour [24, 5, 12].
    assert [griesmer_distance(2**m - 1, m) for m in (3, 4, 5, 6)] == [4, 8, 16, 32]
    assert code_distance(24, 5) == 12
    assert code_distance(64, 14) == griesmer_distance(64, 14) >= 24
    assert code_distance(8, 12) == 1
    distances = [code_distance(96, m) for m in range(1, 15)]
    assert distances == sorted(distances, reverse=True)


def test_quantisation() -> None:
    h = torch.tensor([[1.0, -1.0], [0.5, -0.25], [0.0, 1.0]], dtype=torch.float64)
    assert quantisation(h).item() == pytest.approx((0 + 0.25 + 0.5625 + 1) / 3)
    assert gradcheck(quantisation, (torch.randn(4, 5, dtype=torch.float64).requires_grad_(),))
    (gradient,) = torch.autograd.grad(quantisation(zero := torch.zeros(1, 1).requires_grad_()), zero)
    assert gradient.item() == -2  # 0 becomes +1
