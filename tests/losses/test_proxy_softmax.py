"""The proxy softmax against its formula in loops."""

from math import exp, log

import pytest
import torch
from torch.autograd import gradcheck

from kenthash.losses.proxy_softmax import proxy_softmax

LABELS = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.float64)


def test_is_the_formula() -> None:
    torch.manual_seed(0)
    scores = 3 * torch.randn(4, 4, dtype=torch.float64)
    total = 0.0
    for s, y in zip(scores.tolist(), LABELS.tolist(), strict=True):
        positive = [c for c in range(4) if y[c]]
        against = sum(exp(s[c]) for c in range(4) if not y[c])
        total += sum(-log(exp(s[p]) / (exp(s[p]) + against)) for p in positive) / max(len(positive), 1)
    assert proxy_softmax(scores, LABELS).item() == pytest.approx(total / 3, abs=1e-12)  # one has no label
    assert gradcheck(lambda s: proxy_softmax(s, LABELS), scores.requires_grad_())


def test_large_scores_and_no_labels_stay_finite() -> None:
    scores = torch.tensor([[500.0, -500, 0, 0]], requires_grad=True)
    loss = proxy_softmax(scores, torch.tensor([[0.0, 1, 0, 0]]))
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(1000)
    assert scores.grad is not None and scores.grad.isfinite().all()
    assert proxy_softmax(scores, torch.zeros(1, 4)).item() == 0
