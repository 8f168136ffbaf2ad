"""Distribution-aware proxy triplet loss (KDPH, section "Distribution-Aware Proxy Triplet Loss").

Without a table of pairs: the loss is linear in the scores as long as no pair crosses the hinge, so it is known from
how many active pairs (s_n − s_p + m > 0) each score is part of. Counting them is the work, and it needs no gradient.
"""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kenthash.jit import njit_cached

# Positives of a sample from which sorting them beats visiting all pairs (measured, C = 1,000 and 10,000).
MANY_POSITIVES = 512

Over = Literal["samples", "pairs"]


def proxy_triplet(scores: Tensor, labels: Tensor, margin: float, over: Over = "samples") -> Tensor:
    """The mean over samples of the hinge over all pairs of a positive class p and a negative class n:

        L = mean_i 1/(|P_i||N_i|) Σ_{p∈P_i} Σ_{n∈N_i} max(0, s_in − s_ip + m)

    `scores` [B, C], `labels` multi-hot [B, C]. A sample without a positive or without a negative has no pair: it adds
    nothing and is not counted in the mean; a batch of such samples gives 0. Exact in value and gradient; at the kink
    itself the gradient is that of the inactive side. Over "pairs" it is one mean over all pairs of the batch, in which
    a sample with more labels weighs more.

    Example:

        >>> scores, labels = torch.tensor([[2.0, 1.0, 1.9]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> proxy_triplet(scores, labels, margin=0.3)  # (0 + 0.2) / 2
        tensor(0.1000)
    """
    of = compiled_gradient if scores.device.type == "cpu" else sorted_gradient
    gradient, active = of(scores.detach(), labels, margin, over)
    return (scores * gradient).sum() + margin * active


def sorted_gradient(scores: Tensor, labels: Tensor, margin: float, over: Over = "samples") -> tuple[Tensor, Tensor]:
    """The loss's gradient [B, C] and the weighted number of active pairs, O(C log C) per sample, on any device.

    The positives are sorted, a binary search places every negative among them, and prefix sums count from there.
    """
    positive = labels > 0
    positives = positive.sum(-1)
    pairs = positives * (labels.shape[-1] - positives)
    shared_by = pairs.clamp(min=1) * (pairs > 0).sum() if over == "samples" else pairs.sum()
    weights = (pairs > 0) / shared_by.clamp(min=1).to(scores.dtype)
    keys, order = torch.where(positive, scores - margin, torch.inf).sort(-1)
    most = int(positives.max())
    keys, order = keys[:, :most].contiguous(), order[:, :most]
    # A negative is active with the positives sorted before it: those with s_p − m < s_n.
    before = torch.searchsorted(keys, torch.where(positive, -torch.inf, scores))
    # A positive of rank r is active with the negatives that have more than r positives before them.
    having = torch.zeros(len(scores), most + 1, dtype=scores.dtype, device=scores.device)
    having.scatter_add_(-1, before, torch.ones_like(scores))
    beyond = having.flip(-1).cumsum(-1).flip(-1)[:, 1:]
    counts = before.to(scores.dtype)
    active = weights @ counts.sum(-1)
    counts = counts.scatter_add(-1, order, torch.where(keys.isinf(), 0, -beyond))
    return counts * weights[:, None], active


def compiled_gradient(
    scores: Tensor, labels: Tensor, margin: float, over: Over = "samples", many: int = MANY_POSITIVES
) -> tuple[Tensor, float]:
    """`sorted_gradient` on the CPU; a sample with fewer than `many` positives is counted pair by pair, O(|P| C)."""
    gradient = torch.empty(scores.shape, dtype=scores.dtype)
    least = (scores - margin).contiguous()
    arrays = (scores.contiguous().numpy(), least.numpy(), labels.contiguous().numpy())
    return gradient, _count(*arrays, over == "samples", many, gradient.numpy())


@njit_cached(nogil=True)
def _count(
    scores: NDArray[Any],
    least: NDArray[Any],
    labels: NDArray[Any],
    samples_alike: bool,
    many: int,
    gradient: NDArray[Any],
) -> float:
    """Fill in the gradient, return the weighted number of active pairs. `least` is scores − margin."""
    samples, classes = scores.shape
    positives = np.zeros(samples, np.int64)
    for i in range(samples):
        for c in range(classes):
            positives[i] += labels[i, c] > 0
    counted = max(1, np.sum((positives > 0) & (positives < classes)))
    all_pairs = max(1, np.sum(positives * (classes - positives)))
    where = np.empty(classes, np.int64)
    total = 0.0
    for i in range(samples):
        if positives[i] == 0 or positives[i] == classes:
            gradient[i] = 0
            continue
        negatives = scores[i].copy()
        number = 0
        for c in range(classes):
            if labels[i, c] > 0:
                negatives[c] = -np.inf
                where[number] = c
                number += 1
        counts = np.zeros(classes, np.int32)
        if number < many:
            active = _visit_pairs(negatives, least[i], where[:number], counts)
        else:
            active = _search(negatives, least[i], where[:number], counts)
        weight = 1 / (number * (classes - number) * counted) if samples_alike else 1 / all_pairs
        total += active * weight
        for c in range(classes):
            gradient[i, c] = counts[c] * weight
    return total


@njit_cached(nogil=True)
def _visit_pairs(negatives: NDArray[Any], least: NDArray[Any], where: NDArray[np.int64], counts: NDArray[Any]) -> int:
    total = 0
    for p in where:
        key = least[p]
        active = np.int32(0)
        for n in range(len(negatives)):
            is_active = np.int32(negatives[n] > key)
            counts[n] += is_active
            active += is_active
        counts[p] = -active
        total += int(active)
    return total


@njit_cached(nogil=True)
def _search(negatives: NDArray[Any], least: NDArray[Any], where: NDArray[np.int64], counts: NDArray[Any]) -> int:
    ranked = where[np.argsort(least[where])]
    keys = least[ranked]
    having = np.zeros(len(keys) + 1, np.int32)
    total = 0
    for n in range(len(negatives)):
        before = 0
        span = len(keys)
        while span > 0:  # halves without a branch that the processor would have to guess
            half = (span + 1) // 2
            before += half * (keys[before + half - 1] < negatives[n])
            span -= half
        counts[n] = before
        having[before] += 1
        total += before
    beyond = np.int32(0)
    for rank in range(len(keys) - 1, -1, -1):
        beyond += having[rank + 1]
        counts[ranked[rank]] = -beyond
    return total
