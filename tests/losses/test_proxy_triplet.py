"""The proxy triplet loss against all pairs in loops: values, gradients, and every way of counting."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from kenthash.losses.proxy_triplet import Over, compiled_gradient, proxy_triplet, sorted_gradient


def in_loops(scores: Tensor, labels: Tensor, margin: float, over: str = "samples") -> Tensor:
    losses: list[Tensor] = []
    every_pair: list[Tensor] = []
    for s, y in zip(scores, labels, strict=True):
        positives = [c for c in range(len(y)) if y[c] > 0]
        negatives = [c for c in range(len(y)) if y[c] == 0]
        if positives and negatives:
            pairs = [torch.relu(s[n] - s[p] + margin) for p in positives for n in negatives]
            losses.append(torch.stack(pairs).mean())
            every_pair += pairs
    losses = losses if over == "samples" else every_pair
    return torch.stack(losses).mean() if losses else scores.sum() * 0


def batch(samples: int, classes: int, density: float, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(samples, classes, generator=generator) < density).double()
    return torch.randn(samples, classes, generator=generator, dtype=torch.float64).requires_grad_(), labels


@settings(max_examples=60)
@given(
    st.integers(1, 6), st.integers(1, 14), st.sampled_from([0.0, 0.2, 0.6, 1.0]), st.sampled_from([0.0, 0.3, 2.0]),
    st.integers(0, 999), st.sampled_from(["samples", "pairs"]),
)  # fmt: skip
def test_equals_all_pairs(samples: int, classes: int, density: float, margin: float, seed: int, over: Over) -> None:
    scores, labels = batch(samples, classes, density, seed)
    value, expected = proxy_triplet(scores, labels, margin, over), in_loops(scores, labels, margin, over)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    (gradient,) = torch.autograd.grad(value, scores)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, scores)[0], rtol=0, atol=1e-12)


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 40), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.booleans(), st.integers(0, 999))
def test_sorting_counts_what_visiting_pairs_counts(
    samples: int, classes: int, density: float, ties: bool, seed: int
) -> None:
    scores, labels = batch(samples, classes, density, seed)
    scores = scores.detach().round() if ties else scores.detach()  # whole numbers: many pairs sit on the kink
    margin = 1.0 if ties else 0.3
    pairs, active = compiled_gradient(scores, labels, margin, many=classes + 1)
    for gradient, count in (
        compiled_gradient(scores, labels, margin, many=0),
        sorted_gradient(scores, labels, margin),
    ):
        torch.testing.assert_close(gradient, pairs, rtol=0, atol=1e-12)
        assert float(count) == pytest.approx(active, abs=1e-12)
    compiled, by_sorting = (of(scores, labels, margin, "pairs") for of in (compiled_gradient, sorted_gradient))
    torch.testing.assert_close(compiled[0], by_sorting[0], rtol=0, atol=1e-12)


def test_many_classes_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(3, 3000, generator=generator) < 0.3).float()
    labels[0] = 0
    labels[0, 7] = 1  # one sample with few positives beside two with some 900
    scores = torch.randn(3, 3000, generator=generator).requires_grad_()
    value = proxy_triplet(scores, labels, 0.3)
    (gradient,) = torch.autograd.grad(value, scores)
    expected = torch.zeros(())
    for s, y in zip(scores, labels, strict=True):
        expected = expected + torch.relu(s[y == 0] - s[y > 0][:, None] + 0.3).mean() / 3
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, scores)[0], rtol=0, atol=1e-6)


def test_by_hand() -> None:
    scores = torch.tensor([[1.0, 0.9, -2.0], [5.0, 0.0, 0.0]])
    labels = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    # The first sample's pairs: 0.9 − 1 + 0.3 = 0.2 and none; the second has no negative and is not counted.
    assert proxy_triplet(scores, labels, 0.3).item() == pytest.approx(0.1)


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_no_pair_at_all(fill: float) -> None:
    scores = torch.randn(4, 5).requires_grad_()
    value = proxy_triplet(scores, torch.full((4, 5), fill), 0.3)
    torch.autograd.backward(value)
    assert value.item() == 0
    assert scores.grad is not None and torch.equal(scores.grad, torch.zeros(4, 5))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_labels_of_any_type_and_scores_of_any_layout(dtype: torch.dtype) -> None:
    scores, labels = batch(6, 9, 0.3, seed=3)
    turned = scores.detach().mT.contiguous().mT
    assert proxy_triplet(turned, labels.to(dtype), 0.3).item() == pytest.approx(
        proxy_triplet(scores, labels, 0.3).item(), abs=1e-12
    )


def test_gradcheck() -> None:
    scores, labels = batch(5, 8, 0.4, seed=5)
    assert gradcheck(lambda s: proxy_triplet(s, labels, 0.3), (scores,))
