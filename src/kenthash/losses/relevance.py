"""Which pairs of items are similar: S_ij = [y_i · y_j > 0], the field's definition."""

from torch import Tensor


def shares_label(labels: Tensor, others: Tensor) -> Tensor:
    """Boolean [N, M]: whether two multi-hot rows, [N, C] and [M, C], have a label in common."""
    return labels @ others.T > 0
