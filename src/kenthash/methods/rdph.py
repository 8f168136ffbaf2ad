"""RDPH: deep ranking distribution preserving hashing.

Rankings of one batch as distributions: those of the outputs across modalities should follow the labels' (10), the two
directions should agree (10), and within a modality they should follow the frozen features' own (20); 1e-5 quantisation.

Losses, values, head and optimiser after the authors' code. Left out: its mixed and random inputs without a class, which
would have to pass the heads, and an adversarial term of weight 1e-6. It ranks one batch for another; here a batch is
ranked for itself, without the diagonal. Its margin of 0.05, taken from all entries of a row, cancels in the softmax.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import normalize

from kenthash.losses.quantisation import quantisation
from kenthash.losses.ranking_divergence import label_similarity, ranking_divergence
from kenthash.methods.base import Batch, Method


@dataclass(frozen=True)
class Settings:
    ranking: float = 10.0
    consistency: float = 10.0
    features: float = 20.0
    quantisation: float = 1e-5


class Rdph(Method):
    key = "rdph"
    title = "RDPH"
    citation = "Song et al., Deep Ranking Distribution Preserving Hashing, TMM 2024"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "head": {"kind": "tanh_mlp", "hidden": 512, "dropout": 0.0},
        "optimizer": {"beta2": 0.999, "eps": 1e-8, "warmup": 0.0, "decay": "constant"},
        "clip": None,
    }

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        x, t = normalize(batch.x), normalize(batch.t)
        across = x @ t.T
        target = label_similarity(batch.labels)
        return {
            "ranking": ranking_divergence(target, across) + ranking_divergence(target, across.T),
            "consistency": ranking_divergence(across, across.T),
            "features": ranking_divergence(cosines(batch.image_features), x @ x.T)
            + ranking_divergence(cosines(batch.text_features), t @ t.T),
            "quantisation": quantisation(batch.x) + quantisation(batch.t),
        }

    def weights(self) -> dict[str, float]:
        s = self.settings
        return {
            "ranking": s.ranking,
            "consistency": s.consistency,
            "features": s.features,
            "quantisation": s.quantisation,
        }


def cosines(features: Tensor) -> Tensor:
    unit = normalize(features)
    return unit @ unit.T
