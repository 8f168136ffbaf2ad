"""Average precision as a loss: the ranking that a code will be judged by, made differentiable.

Hamming distances are whole numbers, so a ranking by codes is a histogram. Outputs in [-1, 1] stand for codes on the
way there: d = (K − uᵀv)/2 is the Hamming distance once they are signs, and a distance between two whole numbers counts
in both bins in proportion (a triangular kernel; Cakir et al., Deep Metric Learning to Rank, CVPR 2019, FastAP;
He et al., Hashing as Tie-Aware Learning to Rank, CVPR 2018). No threshold, no margin, no temperature to choose.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kenthash.jit import njit_cached


def average_precision_loss(queries: Tensor, items: Tensor, relevant: Tensor, counted: Tensor | None = None) -> Tensor:
    """1 − the mean AP of ranking `items` [M, K] by their distance to each of `queries` [B, K].

        AP_i = 1/n_i Σ_l h⁺_il H⁺_il / H_il,    H_l = h_0 + ... + h_l,

    h_il: the (fractional) number of items at distance l of query i, h⁺ that of relevant ones, n_i = Σ_l h⁺_il.
    `relevant` and `counted` are boolean [B, M]; what is not counted is not in the ranking (an item itself, where the
    two sets are one). Queries without a relevant item are left out; a batch of such queries gives 0.

    Example:

        >>> query, items = torch.ones(1, 8), torch.stack([torch.ones(8), -torch.ones(8)])
        >>> average_precision_loss(query, items, torch.tensor([[True, False]]))
        tensor(0.)
        >>> average_precision_loss(query, items, torch.tensor([[False, True]]))
        tensor(0.5000)
    """
    bits = queries.shape[1]
    distances = (bits - queries @ items.T) / 2
    if counted is None:
        counted = torch.ones_like(relevant)
    of = compiled_gradient if distances.device.type == "cpu" else binned_gradient
    gradient, value = of(distances.detach(), relevant & counted, counted, bits)
    # The value as a constant, with the gradient as the slope at these distances.
    return value + ((distances - distances.detach()) * gradient).sum()


def binned_gradient(distances: Tensor, relevant: Tensor, counted: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The loss and its slope in every distance, on any device."""
    lower = distances.floor().clamp(0, bits - 1)
    share = (distances - lower).clamp(0, 1)
    lower = lower.long()

    def histogram(members: Tensor) -> Tensor:
        ones = members.to(distances.dtype)
        empty = torch.zeros(len(distances), bits + 1, dtype=distances.dtype, device=distances.device)
        return empty.scatter_add(1, lower, ones * (1 - share)).scatter_add(1, lower + 1, ones * share)

    hits, all_ = histogram(relevant), histogram(counted)
    hits_to, all_to = hits.cumsum(1), all_.cumsum(1).clamp(min=torch.finfo(distances.dtype).tiny)
    number = relevant.sum(1)
    used = number > 0
    weight = used / (number.clamp(min=1) * used.sum().clamp(min=1)).to(distances.dtype)
    value = used.any().to(distances.dtype) - weight @ (hits * (hits_to / all_to)).sum(1)

    def from_here(terms: Tensor) -> Tensor:
        return terms.flip(1).cumsum(1).flip(1)

    precision = hits_to / all_to
    by_hit = precision + from_here(hits / all_to)
    by_any = -from_here(hits / all_to * precision)
    slopes = [(-weight[:, None] * (table.diff(dim=1))).gather(1, lower) for table in (by_hit, by_any)]
    return slopes[0] * relevant + slopes[1] * counted, value


def compiled_gradient(distances: Tensor, relevant: Tensor, counted: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """`binned_gradient` on the CPU, in two passes over a row."""
    gradient = torch.zeros_like(distances)
    arrays = (distances.contiguous().numpy(), relevant.contiguous().numpy(), counted.contiguous().numpy())
    value = _rank(*arrays, bits, gradient.numpy())
    return gradient, torch.tensor(value, dtype=distances.dtype)


@njit_cached(nogil=True)
def _rank(
    distances: NDArray[Any], relevant: NDArray[np.bool_], counted: NDArray[np.bool_], bits: int, gradient: NDArray[Any]
) -> float:
    queries, items = distances.shape
    numbers = np.zeros(queries, np.int64)
    for i in range(queries):
        for j in range(items):
            numbers[i] += relevant[i, j]
    used = np.sum(numbers > 0)
    total = 0.0
    for i in range(queries):
        if numbers[i] == 0:
            continue
        hits, all_ = np.zeros(bits + 1), np.zeros(bits + 1)
        for j in range(items):
            if counted[i, j]:
                lower = min(max(int(distances[i, j]), 0), bits - 1)
                share = min(max(distances[i, j] - lower, 0.0), 1.0)
                all_[lower] += 1 - share
                all_[lower + 1] += share
                if relevant[i, j]:
                    hits[lower] += 1 - share
                    hits[lower + 1] += share
        hits_to, all_to = np.cumsum(hits), np.cumsum(all_)
        by_hit, by_any = np.zeros(bits + 1), np.zeros(bits + 1)
        later_hit, later_any, precision = 0.0, 0.0, 0.0
        for m in range(bits, -1, -1):
            if all_to[m] > 0:
                later_hit += hits[m] / all_to[m]
                later_any += hits[m] * hits_to[m] / all_to[m] ** 2
                by_hit[m] = hits_to[m] / all_to[m]
                precision += hits[m] * by_hit[m]
            by_hit[m] += later_hit
            by_any[m] = -later_any
        weight = 1 / (numbers[i] * used)
        total += precision * weight
        for j in range(items):
            if counted[i, j]:
                lower = min(max(int(distances[i, j]), 0), bits - 1)
                slope = by_any[lower + 1] - by_any[lower]
                if relevant[i, j]:
                    slope += by_hit[lower + 1] - by_hit[lower]
                gradient[i, j] = -weight * slope
    return (1.0 if used > 0 else 0.0) - total
