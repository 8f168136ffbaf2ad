"""The two passes over the codes in torch, for a GPU: the same counts and the same stable order as the compiled ones.

Signs are ±1, so a float32 product of two codes is an exact integer (also with TF32), and distance = (K − product)/2.
Pairs of a query and an item are processed in chunks that bound the memory.
"""

from collections.abc import Iterator

import numpy as np
import torch

from kenthash.codes import Codes, unpack
from kenthash.errors import UsageError
from kenthash.evaluation.histograms import Counts
from kenthash.evaluation.inputs import Labels, Retrieval
from kenthash.evaluation.measures import Scores

ITEMS = 1 << 16
PAIRS = 1 << 22  # about 200 MiB of distances, labels, bins and ranks at a time


def count_items_torch(name: str, task: Retrieval, first: int, last: int, grades: int) -> Counts:
    """As `histograms.count_items`: counts [q, (bits + 1)·grades] of the queries first to last."""
    device = open_device(name)
    bins = (task.bits + 2) * grades
    counts = torch.zeros((last - first, bins), dtype=torch.int64, device=device)
    for a, b, distance, shared in _chunks(task, first, last, device):
        at = distance * grades + shared.clamp(max=grades - 1)
        counts[a:b] += _histogram(at, bins)
    return np.ascontiguousarray(counts[:, :-grades].cpu().numpy())  # the last distance is the query itself


def rank_items_torch(
    name: str, task: Retrieval, first: int, last: int, rank: Counts, relevant_before: Counts, cutoffs: Counts
) -> tuple[Scores, Counts]:
    """As `stable.rank_items`: sums of precision at relevant items, and hits, [q, cut-offs]."""
    device = open_device(name)
    ranks, relevants = (
        torch.nn.functional.pad(torch.from_numpy(x), (0, 1)).to(device) for x in (rank, relevant_before)
    )
    sums = torch.zeros((last - first, len(cutoffs)), dtype=torch.float64, device=device)
    hits = torch.zeros((last - first, len(cutoffs)), dtype=torch.int64, device=device)
    for a, b, distance, shared in _chunks(task, first, last, device):
        distance, order = distance.sort(dim=1, stable=True)
        relevant = (shared > 0).gather(1, order)
        items, hit = _histogram(distance, task.bits + 2), _histogram(distance, task.bits + 2, relevant)
        # Place within this chunk's own ranking, moved to where the distance stands in the whole one.
        place = torch.arange(1, distance.shape[1] + 1, device=device)
        at = place + (ranks[a:b] - items.cumsum(1) + items).gather(1, distance)
        upto = relevant.cumsum(1) + (relevants[a:b] - hit.cumsum(1) + hit).gather(1, distance)
        for c, cutoff in enumerate(cutoffs):
            counted = relevant & (at <= int(cutoff))
            sums[a:b, c] += (counted * upto.double() / at).sum(1)
            hits[a:b, c] += counted.sum(1)
        ranks[a:b] += items
        relevants[a:b] += hit
    return sums.cpu().numpy(), hits.cpu().numpy()


def open_device(name: str) -> torch.device:
    """The torch device of this name; a one-line error where it cannot be used."""
    try:
        device = torch.device(name)
        torch.empty(1, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"device {name!r} cannot be used, choose cpu or one that torch sees: {reason}") from error
    return device


def _chunks(
    task: Retrieval, first: int, last: int, device: torch.device
) -> Iterator[tuple[int, int, torch.Tensor, torch.Tensor]]:
    """(a, b, distance, shared labels) [b − a, items], for queries first + a to first + b and the items in order.

    With `exclude_self` the query's own item stands irrelevant at distance K + 1, behind every other.
    """
    signs, labels = _signs(task.query_codes[first:last], device), _labels(task.query_labels[first:last], device)
    for start in range(0, len(task.database_codes), ITEMS):  # outside, so that each item is moved to the device once
        part = slice(start, start + ITEMS)
        items, item_labels = _signs(task.database_codes[part], device), _labels(task.database_labels[part], device)
        step = max(1, PAIRS // len(items))
        for a in range(0, last - first, step):
            b = min(a + step, last - first)
            distance = ((task.bits - signs[a:b] @ items.T) / 2).long()
            shared = (labels[a:b] @ item_labels.T).long()
            if task.exclude_self:
                own = torch.arange(first + a - start, first + b - start, device=device)
                row = ((own >= 0) & (own < len(items))).nonzero()[:, 0]
                distance[row, own[row]], shared[row, own[row]] = task.bits + 1, 0
            yield a, b, distance, shared


def _histogram(at: torch.Tensor, bins: int, where: torch.Tensor | None = None) -> torch.Tensor:
    """Counts of the values of each row [rows, bins], of those `where` it is true."""
    flat = at + torch.arange(len(at), device=at.device)[:, None] * bins
    return torch.bincount(flat.flatten() if where is None else flat[where], minlength=len(at) * bins).view(-1, bins)


def _signs(codes: Codes, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(unpack(codes)).to(device, torch.float32)


def _labels(labels: Labels, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(labels.astype(np.uint8)).to(device, torch.float32)
