"""Losses over all pairs of a batch, against loops: DCHMT, the likelihood of MITH and MIAN, DNpH, RDPH, DCPH."""

import math

import numpy as np
import pytest
import torch
from loss_cases import BITS, ITEMS, LABELS, Array, agree, cosine, outputs, similar, tensor
from torch.autograd import gradcheck

from kenthash.losses.pair_likelihood import pair_likelihood
from kenthash.losses.quantisation import bit_variance
from kenthash.losses.ranking_divergence import label_similarity, ranking_divergence
from kenthash.methods.dchmt import pair_distance
from kenthash.methods.dcph import margin_softmax_parts
from kenthash.methods.dnph_tmm import spherical_information
from kenthash.methods.pairs import shares_label

every_batch = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())


@every_batch
def test_shares_label(labels: Array) -> None:
    fast = shares_label(tensor(labels), tensor(labels[:3]))
    assert np.array_equal(fast.numpy(), similar(labels)[:, :3])


@every_batch
def test_pair_distance(labels: Array) -> None:
    b, s, reach = outputs(1), similar(labels), 1.7

    def slow(a: Array) -> float:
        total = 0.0
        for i in range(ITEMS):
            for j in range(ITEMS):
                d = math.sqrt(sum((a[i, k] - b[j, k]) ** 2 for k in range(BITS)))
                total += d**2 if s[i, j] else max(0.0, reach - d) ** 2
        return total / ITEMS**2

    agree(lambda a: pair_distance(a, tensor(b), torch.from_numpy(s), reach), slow, outputs(0))


def test_pair_distance_of_an_item_with_itself_has_a_gradient() -> None:
    a = tensor(outputs(0), grad=True)
    torch.autograd.backward(pair_distance(a, a, torch.zeros(ITEMS, ITEMS, dtype=torch.bool), 2.0))
    assert a.grad is not None and a.grad.isfinite().all()


@every_batch
@pytest.mark.parametrize("squared", [False, True])
def test_pair_likelihood(labels: Array, squared: bool) -> None:
    memory, s = 3 * outputs(1), similar(labels)

    def slow(h: Array) -> float:
        total = 0.0
        for i in range(ITEMS):
            for j in range(ITEMS):
                theta = 0.5 * float(memory[i] @ h[j])
                loss = math.log1p(math.exp(theta)) - s[i, j] * theta
                total += loss**2 if squared else loss
        return total / ITEMS**2

    def fast(h: torch.Tensor) -> torch.Tensor:
        return pair_likelihood(tensor(memory), h, torch.from_numpy(s), squared)

    agree(fast, slow, outputs(0))
    assert gradcheck(fast, tensor(outputs(2), grad=True))


def test_pair_likelihood_in_blocks_and_with_large_products() -> None:
    rng = np.random.default_rng(0)
    memory, h = 20 * rng.standard_normal((2500, 8)), 20 * rng.standard_normal((3, 8))
    s = rng.random((2500, 3)) < 0.3
    theta = memory @ h.T / 2
    expected = (np.logaddexp(0, theta) - s * theta).mean()
    assert pair_likelihood(tensor(memory), tensor(h), torch.from_numpy(s)).item() == pytest.approx(expected, rel=1e-12)


@every_batch
def test_spherical_information(labels: Array) -> None:
    b, s = outputs(1), similar(labels)

    def slow(a: Array) -> float:
        total, m = 0.0, ITEMS**2 / s.sum() if s.any() else math.inf
        for i in range(ITEMS):
            for j in range(ITEMS):
                y = 0.5 * (cosine(a[i], b[j]) + 1)
                total += (s[i, j] * y - 1) ** 2 + y**2 / m
        return total / ITEMS**2

    agree(lambda a: spherical_information(a, tensor(b), torch.from_numpy(s)), slow, outputs(0))


@every_batch
def test_label_similarity(labels: Array) -> None:
    fast = label_similarity(tensor(labels)).numpy()
    for i, a in enumerate(labels):
        for j, b in enumerate(labels):
            shared = len({c for c in range(len(a)) if a[c]} & {c for c in range(len(b)) if b[c]})
            assert fast[i, j] == pytest.approx(3.2**shared / max(math.log(a.sum() - shared + 1), 1))


def test_ranking_divergence() -> None:
    other = outputs(1, ITEMS, ITEMS)

    def slow(table: Array) -> float:
        total = 0.0
        for i in range(ITEMS):
            others = [j for j in range(ITEMS) if j != i]
            p, q = (np.array([math.exp(m[i, j]) for j in others]) for m in (table, other))
            p, q = p / p.sum(), q / q.sum()
            total += sum(
                a * math.log(2 * a / (a + b)) + b * math.log(2 * b / (a + b)) for a, b in zip(p, q, strict=True)
            )
        return total / ITEMS

    agree(lambda table: ranking_divergence(table, tensor(other)), slow, 3 * outputs(0, ITEMS, ITEMS))
    assert ranking_divergence(tensor(other), tensor(other)).item() == pytest.approx(0, abs=1e-15)
    peaked = tensor(1e4 * outputs(2, ITEMS, ITEMS), grad=True)
    torch.autograd.backward(ranking_divergence(peaked, tensor(other)))
    assert peaked.grad is not None and peaked.grad.isfinite().all()


@every_batch
def test_margin_softmax(labels: Array) -> None:
    classes = labels.shape[1]
    codes, gamma, margin = np.sign(outputs(1, classes)), 0.3, 1.5

    def slow(h: Array) -> float:
        total = 0.0
        for i in range(ITEMS):
            own = [float(h[i] @ codes[c]) for c in range(classes) if labels[i, c]]
            top = math.exp(gamma * ((sum(own) / len(own) if own else 0.0) - margin))
            negatives = sum(math.exp(gamma * (1 - labels[i, c]) * float(h[i] @ codes[c])) for c in range(classes))
            total -= math.log(top / (top + negatives))
        return total / ITEMS

    def fast(h: torch.Tensor) -> torch.Tensor:
        numerator, denominator = margin_softmax_parts(h, tensor(codes), tensor(labels), gamma, margin)
        return (denominator - numerator).mean()

    agree(fast, slow, outputs(0))


def test_bit_variance() -> None:
    def slow(z: Array) -> float:
        return float(np.mean([1 / (1 + math.exp(-v)) / (1 + math.exp(v)) for v in z.flatten()]))

    agree(bit_variance, slow, 4 * outputs(0))
