"""The stable tie rule: items at one distance rank in the order of the database, as a stable sort leaves them.

It depends on how the database happens to be ordered, so it is not the default; it is there to compare with numbers
that were made by sorting.
"""

from collections.abc import Sequence

import numpy as np

from kenthash.evaluation import kernels
from kenthash.evaluation.inputs import Retrieval
from kenthash.evaluation.ranking import EVERYTHING, Scores, nearer, normalise
from kenthash.evaluation.tally import Tally, sweep


def stable_scores(
    task: Retrieval, tally: Tally, ks: Sequence[int | None], device: str = "cpu"
) -> tuple[Scores, Scores]:
    """(AP@k, hits@k), each [q, len(ks)], of the queries of `tally`; k = None is @ALL."""
    cutoffs = np.array([EVERYTHING if k is None else k for k in ks], np.int64)
    order = np.argsort(cutoffs)
    relevant = tally.relevant
    rank, found = nearer(tally.total), nearer(relevant)
    if device == "cpu":
        state = np.pad(rank * kernels.RANK + found, ((0, 0), (0, 1))).astype(np.uint64)
        sums = np.zeros((len(relevant), len(ks)))
        hits = np.zeros((len(relevant), len(ks)), np.int64)
        sweep(task, tally.first, tally.queries.stop, kernels.walk, cutoffs[order], state, sums, hits)
    else:
        from kenthash.evaluation.device import walk_on

        sums, hits = walk_on(device, task, tally.first, tally.queries.stop, rank, found, cutoffs[order])
    sums[:, order], hits[:, order] = sums.copy(), hits.copy()  # back to the order asked for
    ap = np.stack([normalise(sums[:, i], relevant.sum(axis=1), k) for i, k in enumerate(ks)], axis=1)
    return ap, hits.astype(np.float64)
