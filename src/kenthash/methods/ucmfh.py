"""UCMFH: hash heads on CLIP's frozen vectors, learned by contrast. It learns from pairs of pictures and texts alone.

One term: NT-Xent over the outputs of both modalities, τ = 0.5, in which each output has all other outputs of the batch
as negatives, those of its own modality too (`losses/infonce.py`).

A reconstruction after the authors' code, without its fusion: there a network joins the vector of a picture with that
of its own text before either is hashed, in training and at test alike. A query has no such partner, and the code of a
photo that has seen its caption finds that caption for another reason. So the hash networks and their loss are here, fed
with the vectors themselves. Their rate rises by 1.2 in the first steps; here it is warmed up and decays like all
others.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from kenthash.losses.infonce import nt_xent
from kenthash.methods.base import Batch, Method


@dataclass(frozen=True)
class Settings:
    temperature: float = 0.5


class Ucmfh(Method):
    key = "ucmfh"
    title = "UCMFH"
    citation = "Xia et al., When CLIP Meets Cross-Modal Hashing Retrieval: A New Strong Baseline, Inf. Fusion 2023"
    fidelity = "reconstruction"
    settings_class = Settings
    needs_labels = False
    changes = "a picture's vector is not joined with that of its own text before it is hashed, as no query has both"
    recipe: ClassVar[dict[str, Any]] = {
        "head": {"kind": "tanh", "hidden": 4096, "dropout": 0.3},
        "optimizer": {"name": "adam", "beta1": 0.5, "beta2": 0.999, "eps": 1e-8},
    }

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        return {"contrast": nt_xent(batch.x, batch.t, self.settings.temperature)}

    def weights(self) -> dict[str, float]:
        return {"contrast": 1.0}
