"""mAP of real-valued outputs by cosine: what signing costs, and what the backbone's own features give.

Never a score of codes: it is a column of its own, with a name of its own. Equal cosines are rare and rank in the
order of the database.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kenthash.errors import DataError, UsageError
from kenthash.evaluation.device import open_device
from kenthash.evaluation.inputs import Labels, check_cutoffs, check_labels, check_same_items
from kenthash.evaluation.ranking import EVERYTHING, Scores, normalise

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
    """mAP@k (None: @ALL; divided as in `ranking`) of float vectors [N, D] ranked by cosine.

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
    ap = _average_precision(queries, database, query_labels, database_labels, k, exclude_self, open_device(device))
    scored = ap[~np.isnan(ap)]
    if not len(scored):
        raise DataError(
            f"none of the {len(ap)} queries shares a label with any database item: there is no mAP to report"
        )
    return float(scored.mean())


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
        asked = torch.from_numpy(queries[a : a + step]).to(device)
        shared = torch.from_numpy(query_labels[a : a + step].astype(np.float32)).to(device) @ labels.T
        cosine = asked @ items.T
        if exclude_self:  # behind all others and irrelevant, the query itself changes nothing
            row = torch.arange(len(asked), device=device)
            cosine[row, a + row], shared[row, a + row] = -2.0, 0.0
        order = cosine.sort(dim=1, descending=True, stable=True).indices
        relevant = (shared > 0).gather(1, order)
        precision = relevant.cumsum(1).double() / ranks * relevant
        sums = precision[:, :cutoff].sum(1).cpu().numpy()
        parts.append(normalise(sums, relevant.sum(1).cpu().numpy(), k))
    return np.concatenate(parts)


def _unit(side: str, outputs: NDArray[Any]) -> NDArray[np.float32]:
    """Rows of length 1. What has no direction (NaN, infinity, zeros) is refused, not ranked somewhere."""
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
