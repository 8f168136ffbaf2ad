"""Pairs of items, for the methods that learn from them: which are similar, within a batch and across modalities, and
against a memory of all training items."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def shares_label(labels: Tensor, others: Tensor) -> Tensor:
    """Boolean [N, M]: whether two multi-hot rows, [N, C] and [M, C], have a label in common: S_ij = [y_i · y_j > 0],
    the field's definition of similar items."""
    return labels @ others.T > 0


def across_and_within(loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, t: Tensor) -> dict[str, Tensor]:
    """`inter` over (x, t), and `intra` over (x, x) and (t, t); `loss` takes the outputs on either side of the pairs."""
    return {"inter": loss(x, t), "intra": loss(x, x) + loss(t, t)}


class Memory(nn.Module):
    """What a method remembers of all training items: their labels, and their outputs when they were last in a batch.

    Tables [N, K], one for each name, that are part of the module's state and so of a checkpoint.

    Rows start at zero and are zero until their item was in a batch. Against a zero row the inner product is 0 whatever
    the output, so that unseen items count in a mean but send no gradient.
    """

    def __init__(self, names: tuple[str, ...], items: int, classes: int, bits: int) -> None:
        super().__init__()
        self.register_buffer("labels", torch.zeros(items, classes))
        for name in names:
            self.register_buffer(name, torch.zeros(items, bits))

    def write(self, items: Tensor, labels: Tensor, **outputs: Tensor) -> None:
        """Remember `outputs` [B, K] of the items at these positions."""
        for name, values in {"labels": labels, **outputs}.items():
            table = self[name]
            table[items] = values.detach().to(table)

    def __getitem__(self, name: str) -> Tensor:
        return self.get_buffer(name)

    def similar(self, labels: Tensor) -> Tensor:
        """Boolean [N, B]: which remembered items share a label with a batch."""
        return shares_label(self["labels"], labels)
