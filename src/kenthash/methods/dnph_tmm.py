"""DNpH: deep neighbourhood-preserving hashing with quadratic spherical mutual information (the one in TMM).

One term over (x, x), (t, t) and (x, t). Loss and recipe after the authors' code, averaged over pairs instead of summed.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from kenthash.losses.relevance import shares_label
from kenthash.losses.spherical_information import spherical_information
from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method
from kenthash.methods.pairs import across_and_within


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
