"""DDBH: deep discriminative boundary hashing.

The boundary loss over (x, x), (t, t) and (x, t) plus 0.1 times a quantisation term in which, as in the authors' code,
an item weighs as many times as it has similar items in the batch. Loss, values and recipe after that code.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from kenthash.losses.boundary import boundary
from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method
from kenthash.methods.pairs import across_and_within, shares_label


@dataclass(frozen=True)
class Settings:
    quantisation: float = 0.1


class Ddbh(Method):
    key = "ddbh"
    title = "DDBH"
    citation = "Qin et al., Deep Discriminative Boundary Hashing for Cross-modal Retrieval, TCSVT 2024"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {"batch": 64, "optimizer": FIELD_OPTIMIZER}

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        similar = shares_label(batch.labels, batch.labels)
        neighbours = similar.sum(1).to(batch.x.dtype)
        return {
            **across_and_within(lambda a, b: boundary(a, b, similar), batch.x, batch.t),
            "quantisation": sum_of_gaps(batch.x, neighbours) + sum_of_gaps(batch.t, neighbours),
        }

    def weights(self) -> dict[str, float]:
        return {"inter": 1.0, "intra": 1.0, "quantisation": self.settings.quantisation}


def sum_of_gaps(outputs: Tensor, neighbours: Tensor) -> Tensor:
    """mean_ik Σ_j S_ij (h_jk − sign h_jk)²: the squared gaps of every item, times its similar items in the batch."""
    gaps = (1 - outputs.abs()).square().mean(1)
    return (neighbours * gaps).mean()
