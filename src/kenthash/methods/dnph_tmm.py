"""DNpH: deep neighbourhood-preserving hashing with quadratic spherical mutual information (the one in TMM).

One term over (x, x), (t, t) and (x, t). Loss and recipe after the authors' code, averaged over pairs instead of summed.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import normalize

from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method
from kenthash.methods.pairs import across_and_within, shares_label


@dataclass(frozen=True)
class Settings:
    """It has none of its own."""


class DnphTmm(Method):
    key = "dnph-tmm"
    title = "DNpH"
    citation = "Qin et al., Deep Neighborhood-Preserving Hashing with Quadratic Spherical Mutual Information, TMM 2024"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {"optimizer": FIELD_OPTIMIZER}

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        similar = shares_label(batch.labels, batch.labels)
        return across_and_within(lambda a, b: spherical_information(a, b, similar), batch.x, batch.t)

    def weights(self) -> dict[str, float]:
        return {"inter": 1.0, "intra": 1.0}


def spherical_information(a: Tensor, b: Tensor, similar: Tensor) -> Tensor:
    """Quadratic spherical mutual information with square clamping, of `a` [N, K] and `b` [N, K]:

        Y_ij = ½(cos(a_i, b_j) + 1),  M = N² / Σ_ij S_ij,  mean_ij [ (S_ij Y_ij − 1)² + Y_ij² / M ]

    `similar` is boolean [N, N]. The authors sum over pairs; the mean is that sum over N² and does not grow with the
    batch.
    """
    closeness = (normalize(a) @ normalize(b).T + 1) / 2
    share = similar.to(closeness.dtype)
    return ((share * closeness - 1).square() + share.mean() * closeness.square()).mean()
