"""mAP of real-valued outputs by cosine: it shows what signing costs, and what the features of a backbone reach.

It is never a score of codes and is always reported under a name of its own. Equal cosines are rare and rank in the
order of the database.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kenthash.errors import DataError, UsageError
from kenthash.evaluation.inputs import Labels, check_cutoffs, check_labels, check_same_items
from kenthash.evaluation.measures import EVERYTHING, Scores, mean_ap, normalise
from kenthash.evaluation.torch_backend import open_device
from kenthash.jit import compiled

PAIRS = 1 << 22  # cosines ranked at a time, about 200 MiB with their order


def real_valued_map(
    query_outputs: NDArray[Any],
    database_outputs: NDArray[Any],
    query_labels: Labels,
    database_labels: Labels,
    k: int | None = None,
    exclude_self: bool = False,
    device: str = "cpu",
) -> float:
    """mAP@k (None: @ALL; divided as in `measures`) of float vectors [N, D] ranked by cosine.

    Example:

        >>> query, database = np.array([[1.0, 0.0]]), np.array([[1.0, 0.1], [0.0, 1.0], [1.0, 1.0]])
        >>> real_valued_map(query, database, np.array([[1, 0]]), np.array([[0, 1], [1, 0], [1, 0]]))  # ranks 2 and 3
        0.5833333333333333
    """
    queries = _unit("query", query_outputs)
    database = _unit("database", database_outputs)
    if queries.shape[1] != database.shape[1]:
        raise DataError(
            f"query outputs have {queries.shape[1]} dimensions but database outputs have {database.shape[1]}: "
            "cosine needs one space"
        )
    check_labels(query_labels, database_labels, len(queries), len(database))
    check_cutoffs([] if k is None else [k])
    if exclude_self:
        check_same_items(len(queries), len(database))
    return mean_ap(
        _average_precision(queries, database, query_labels, database_labels, k, exclude_self, open_device(device))
    )


def _average_precision(
    queries: NDArray[np.float32],
    database: NDArray[np.float32],
    query_labels: Labels,
    database_labels: Labels,
    k: int | None,
    exclude_self: bool,
    device: torch.device,
) -> Scores:
    items = torch.from_numpy(database).to(device)
    labels = torch.from_numpy(database_labels.astype(np.float32)).to(device)
    ranks = torch.arange(1, len(database) + 1, device=device, dtype=torch.float64)
    cutoff = min(EVERYTHING if k is None else k, len(database))
    step = max(1, PAIRS // len(database))
    parts = []
    for a in range(0, len(queries), step):
        part = torch.from_numpy(queries[a : a + step]).to(device)
        shared = torch.from_numpy(query_labels[a : a + step].astype(np.float32)).to(device) @ labels.T
        cosine = part @ items.T
        if exclude_self:  # last and irrelevant, the query itself changes nothing
            row = torch.arange(len(part), device=device)
            cosine[row, a + row], shared[row, a + row] = -2.0, 0.0
        if device.type == "cpu":
            keys = _keys(cosine.numpy(), shared.numpy())
            keys.sort(axis=1)
            sums, numbers = _precisions(keys, cutoff)
        else:
            order = cosine.sort(dim=1, descending=True, stable=True).indices
            relevant = (shared > 0).gather(1, order)
            precision = relevant.cumsum(1).double() / ranks * relevant
            sums, numbers = precision[:, :cutoff].sum(1).cpu().numpy(), relevant.sum(1).cpu().numpy()
        parts.append(normalise(sums, numbers, k))
    return np.concatenate(parts)


@compiled
def _keys(cosine: NDArray[np.float32], shared: NDArray[np.float32]) -> NDArray[np.int64]:
    """One integer per pair [Q, N], smaller for a larger cosine; equal cosines keep the order of the database.

    The upper half holds the bits of the cosine, mapped so that they decrease; the lower half holds the item and, in
    its last bit, whether it is relevant. So sorting integers, for which numpy has vector code, does the ranking.
    """
    bits = (np.float32(0) - cosine).view(np.int32)  # a difference is never minus zero
    keys = np.empty(cosine.shape, np.int64)
    for i in range(cosine.shape[0]):
        for j in range(cosine.shape[1]):
            b = np.int64(bits[i, j])
            if b < 0:
                b ^= np.int64(0x7FFFFFFF)  # floats below zero count the other way
            keys[i, j] = (b << 32) | (j << 1) | (shared[i, j] > 0)
    return keys


@compiled
def _precisions(keys: NDArray[np.int64], cutoff: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Of every row of sorted keys: the sum of precisions at its relevant ranks up to `cutoff`, and their number."""
    sums, numbers = np.zeros(len(keys)), np.zeros(len(keys), np.int64)
    for i in range(len(keys)):
        for j in range(keys.shape[1]):
            if keys[i, j] & 1:
                numbers[i] += 1
                if j < cutoff:
                    sums[i] += numbers[i] / (j + 1)
    return sums, numbers


def _unit(side: str, outputs: NDArray[Any]) -> NDArray[np.float32]:
    """Rows scaled to length 1. A row without a direction (NaN, infinity, zeros) is an error."""
    if not isinstance(outputs, np.ndarray) or outputs.ndim != 2 or outputs.dtype.kind != "f":
        kind = f"{outputs.dtype} {outputs.shape}" if isinstance(outputs, np.ndarray) else type(outputs).__name__
        raise UsageError(f"{side} outputs must be a float array [items, dimensions], not {kind}")
    if len(outputs) == 0:
        raise DataError(f"there are no {side} outputs: an evaluation needs at least one item on each side")
    rows = outputs.astype(np.float32)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    bad = ~(np.isfinite(length) & (length > 0))[:, 0]
    if bad.any():
        raise DataError(
            f"{side} outputs of {int(bad.sum())} items, the first of them {int(bad.argmax())}, "
            "hold NaN, infinity or only zeros: check their features"
        )
    return np.asarray(rows / length)
