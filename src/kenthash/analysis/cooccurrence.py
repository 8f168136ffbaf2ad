"""Which classes come with many others, which stand alone, and with whom."""

import numpy as np
from numpy.typing import NDArray

from kenthash.data.check import average_cooccurring_labels
from kenthash.evaluation import Labels

Classes = NDArray[np.int64]


def high_and_low(labels: Labels, number: int = 6, least: int | None = None) -> tuple[Classes, Classes]:
    """The `number` classes with most and with fewest co-occurring labels, each from the extreme inwards.

    The paper shows six of each without saying how they were picked. Here they are the extremes of ACL among classes
    with at least `least` items (None: one in 200, and at least 20), as a curve of fewer is noise. Where there are fewer
    than 2·number such classes each side has half of them, and with fewer than two all that occur stand in.
    """
    items = (labels != 0).sum(axis=0)
    if least is None:
        least = max(20, len(labels) // 200)
    known = np.flatnonzero(items >= least)
    if len(known) < 2:
        known = np.flatnonzero(items > 0)
    order = known[np.argsort(average_cooccurring_labels(labels)[known], kind="stable")]
    number = min(number, len(order) // 2)
    return order[::-1][:number], order[:number]


def most_frequent(labels: Labels) -> int:
    """The class that most items carry: COCO's person, which the paper's figures are drawn around."""
    return int((labels != 0).sum(axis=0).argmax())


def companions(labels: Labels, anchor: int, number: int) -> Classes:
    """The classes most often seen with `anchor`, most frequent first, at most `number`."""
    together = (labels[labels[:, anchor] != 0] != 0).sum(axis=0)
    together[anchor] = 0
    order = np.argsort(-together, kind="stable")[:number]
    return np.asarray(order[together[order] > 0])
