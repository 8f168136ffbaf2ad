"""MITH: multi-granularity interactive transformer hashing.

Pairwise likelihood against a memory of all training items, across modalities (10) and within (1), quantisation to
sign(x + t) (8) and InfoNCE between the modalities (10, τ = 0.07). Head, losses and recipe after the authors' code.

That code has a second, finer branch over the patches of an image and the words of a text. Pooled features have no such
tokens, so here the global branch stands alone: the term within a modality, which there is for the tokens' codes, is for
the outputs, and the distillation between the branches (1) has nothing to distil. Its InfoNCE compares the vectors of
the residual blocks, with weight 50. Ours compares the outputs, as towers need not share a dimension (nor can they share
the head's weights), and there 50 drowns the labels; 10 was chosen on validation.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from kenthash.losses.infonce import info_nce
from kenthash.losses.pair_likelihood import pair_likelihood
from kenthash.losses.quantisation import signs
from kenthash.methods.base import Batch, Method, Shapes
from kenthash.methods.pairs import Memory


@dataclass(frozen=True)
class Settings:
    intra: float = 1.0
    inter: float = 10.0
    quantisation: float = 8.0
    contrast: float = 10.0
    temperature: float = 0.07


class Mith(Method):
    key = "mith"
    title = "MITH"
    citation = "Liu et al., Multi-Granularity Interactive Transformer Hashing for Cross-modal Retrieval, MM 2023"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "head": {"kind": "residual", "hidden": 0, "dropout": 0.0},
        "optimizer": {"name": "adamw", "weight_decay": 0.01, "warmup": 0.05},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.memory = Memory(("image", "text"), shapes.items, shapes.classes, shapes.bits)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        x, t = batch.x, batch.t
        self.memory.write(batch.items, batch.labels, image=x, text=t)
        similar = self.memory.similar(batch.labels)
        images, texts = self.memory["image"], self.memory["text"]
        target = signs(x + t)
        return {
            "intra": pair_likelihood(images, x, similar) + pair_likelihood(texts, t, similar),
            "inter": pair_likelihood(images, t, similar) + pair_likelihood(texts, x, similar),
            "quantisation": (x - target).square().mean() + (t - target).square().mean(),
            "contrast": info_nce(x, t, self.settings.temperature) / 2,
        }

    def weights(self) -> dict[str, float]:
        s = self.settings
        return {"intra": s.intra, "inter": s.inter, "quantisation": s.quantisation, "contrast": s.contrast}
