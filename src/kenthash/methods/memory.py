"""What a method remembers of all training items: their labels, and the outputs when they were last in a batch."""

import torch
from torch import Tensor, nn

from kenthash.losses.relevance import shares_label


class Memory(nn.Module):
    """Tables [N, K], one for each name, that are part of the module's state and so of a checkpoint.

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
