"""Curves and look-ups from histograms by distance: precision against recall, precision within a Hamming radius."""

import numpy as np

from kenthash.evaluation.kernels import Counts
from kenthash.evaluation.ranking import Scores, nearer

RECALL_LEVELS = np.arange(1, 101) / 100


def precision_at_recall(relevant: Counts, total: Counts, levels: Scores = RECALL_LEVELS) -> Scores:
    """Precision [q, levels] where each query's expected recall reaches a level; NaN without a relevant item.

    In the expected order, x items into a ranking have found R + r·(x − N)/n of the relevant ones; the level's share
    is found at the smallest such x, and the precision there is share/x. Shares below one item count as one item:
    nobody retrieves less. Averaged over queries this is the precision-recall curve.
    """
    everything = relevant.sum(axis=1)
    N, R = nearer(total), nearer(relevant)
    rows = np.arange(len(relevant))
    precision = np.full((len(relevant), len(levels)), np.nan)
    for i, level in enumerate(levels):
        share = np.maximum(level * everything, 1.0)
        # The slack keeps a share that rounding puts a hair above a whole number at its own distance.
        d = np.minimum((R + relevant < share[:, None] - 1e-9).sum(axis=1), relevant.shape[1] - 1)
        n, r = total[rows, d], np.maximum(relevant[rows, d], 1)
        x = N[rows, d] + (share - R[rows, d]) * n / r
        precision[:, i] = share / np.maximum(x, 1e-300)
    precision[everything == 0] = np.nan
    return precision


def within_radius(relevant: Counts, total: Counts, radius: int) -> tuple[Scores, Counts]:
    """(precision among the items within a Hamming radius, number of those items), each [q].

    A query that finds nothing within the radius has precision 0: its look-up has failed (the
    convention of Liu et al., CVPR 2012).
    """
    found = total[:, : radius + 1].sum(axis=1)
    hits = relevant[:, : radius + 1].sum(axis=1)
    return hits / np.maximum(found, 1), found
