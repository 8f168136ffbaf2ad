"""The irrelevance term against loops over pairs, in the paper's form and in DSPH's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import cosine_similarity

from kenthash.losses.irrelevance import irrelevance

forms = pytest.mark.parametrize(("threshold", "multi"), [(None, False), (None, True), (0.1, False), (0.1, True)])


def in_loops(x: Tensor, t: Tensor, labels: Tensor, threshold: float | None, multi: bool) -> Tensor:
    total = x.sum() * 0
    for u, v in ((x, x), (t, t), (x, t)):
        values = []
        for i in range(len(x)):
            for j in range(len(x)):
                if labels[i] @ labels[j] > 0 or (multi and min(labels[i].sum(), labels[j].sum()) < 2):
                    continue
                cosine = cosine_similarity(u[i], v[j], dim=0)
                values.append(cosine if threshold is None else torch.relu(cosine - threshold))
        if values:
            total = total + torch.stack(values).mean()
    return total


def batch(samples: int, classes: int, density: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(samples, classes, generator=generator) < density).double()
    x, t = torch.randn(2, samples, 4, generator=generator, dtype=torch.float64).tanh()
    return x.requires_grad_(), t.requires_grad_(), labels


@settings(max_examples=50)
@given(
    st.integers(1, 6), st.integers(1, 8), st.sampled_from([0.0, 0.3, 0.6, 1.0]),
    st.sampled_from([None, 0.0, 0.2]), st.booleans(), st.integers(0, 999),
)  # fmt: skip
def test_equals_loops_over_pairs(
    samples: int, classes: int, density: float, threshold: float | None, multi: bool, seed: int
) -> None:
    x, t, labels = batch(samples, classes, density, seed)
    value = irrelevance(x, t, labels, threshold, multi)
    expected = in_loops(x, t, labels, threshold, multi)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    for one, other in zip(
        torch.autograd.grad(value, (x, t)), torch.autograd.grad(expected, (x, t), materialize_grads=True), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@forms
@pytest.mark.parametrize("samples", [1, 5])
def test_no_irrelevant_pair_is_exactly_nothing(threshold: float | None, multi: bool, samples: int) -> None:
    x, t, _ = batch(samples, 3, 0.0, seed=0)
    value = irrelevance(x, t, torch.ones(samples, 3), threshold, multi)
    torch.autograd.backward(value)
    assert value.item() == 0
    for outputs in (x, t):
        assert outputs.grad is not None and torch.equal(outputs.grad, torch.zeros_like(outputs))


def test_by_hand() -> None:
    x = torch.tensor([[2.0, 0.0], [1.0, 0.0]])
    t = torch.tensor([[0.0, 1.0], [3.0, 4.0]])
    labels = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    # (0, 1) and (1, 0) share no label. cos: xx 1 and 1; tt 0.8 and 0.8; xt 0.6 and 0.
    assert irrelevance(x, t, labels).item() == pytest.approx(1 + 0.8 + 0.3)
    assert irrelevance(x, t, labels, threshold=0.5).item() == pytest.approx(0.5 + 0.3 + 0.05)
    assert irrelevance(x, t, labels, threshold=0.5, multi_label_only=True).item() == 0


@forms
def test_gradcheck_and_float32(threshold: float | None, multi: bool) -> None:
    x, t, labels = batch(5, 7, 0.35, seed=8)
    assert irrelevance(x, t, labels, threshold, multi).item() != 0
    assert gradcheck(lambda x, t: irrelevance(x, t, labels, threshold, multi), (x, t))
    single = irrelevance(x.float(), t.float(), labels.float(), threshold, multi)
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(irrelevance(x, t, labels, threshold, multi).item(), abs=1e-5)
