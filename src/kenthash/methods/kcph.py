"""KCPH: Kent caption-preserving hashing, this project's own method and the default of `train`.

    L = L_KAPH + λ_c L_NCE(x, t) + λ_s L_AP(q, x) + λ_k L_KL(x, t)

Shared labels say that two photos are of the same kind, captions say what is on each. KCPH ranks the own pair first,
then what shares labels, then the rest: symmetric InfoNCE (`losses/infonce.py`) sets a picture's own caption against all
others of the batch and the other way round, and the terms of KAPH rank by shared labels, with Kent proxies. Short texts
q ("dog", "a photo of a dog", "red hat") rank the pictures that they ask for first (`training/short_texts.py`), where an
encoder can make their vectors.

Where training goes on from another model, it keeps what that one knows of all pairs of the batch, beside the own ones
(`imitation` in `losses/infonce.py`): else the few captions of most collections are soon known by heart, and what the
model knew of others is lost.

Without labels, InfoNCE, what the first model knows and the phrases of captions are all there is, and λ_c and λ_k are
1. Items without labels are in no ranking by labels, and items without a caption learn from their labels alone.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from kenthash.errors import UsageError
from kenthash.losses.average_precision import average_precision_loss
from kenthash.losses.infonce import imitation, info_nce
from kenthash.methods import kaph
from kenthash.methods.base import Batch, Shapes


@dataclass(frozen=True)
class Settings(kaph.Settings):
    contrast: float = 0.1  # λ_c, weight of own pairs beside labels
    temperature: float = 0.07  # τ
    short: float = 0.1  # λ_s, weight of short texts
    keep: float = 0.2  # λ_k, weight beside labels of what the model knows that training goes on from


class Kcph(kaph.Kaph):
    key = "kcph"
    title = "KCPH"
    settings_class = Settings
    needs_labels = False
    recipe: ClassVar[dict[str, Any]] = {
        **kaph.Kaph.recipe,
        "head": {**kaph.Kaph.recipe["head"], "hidden": 4096},
        "epochs": 40,
        "choose_by": "both",
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        if not settings.contrast > 0:
            raise UsageError("settings.contrast is 0: that is KAPH, use --method kaph")
        super().__init__(shapes, settings)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        terms = super().terms(batch)
        pairs = batch.captioned
        has_pairs = bool(pairs.any())
        if has_pairs:
            terms["contrast"] = info_nce(batch.x[pairs], batch.t[pairs], self.settings.temperature)
        if has_pairs and batch.start is not None and self.settings.keep:
            x0, t0 = batch.start
            terms["keep"] = imitation(batch.x[pairs], batch.t[pairs], x0[pairs], t0[pairs], self.settings.temperature)
        if batch.short is not None:
            short = batch.short
            terms["short"] = average_precision_loss(short.outputs, batch.x, short.relevant, short.counted)
        return terms

    def weights(self) -> dict[str, float]:
        s = self.settings
        contrast, keep = (s.contrast, s.keep) if self.shapes.classes else (1.0, 1.0)
        return super().weights() | {"contrast": contrast, "keep": keep, "short": s.short}

    def uses_short_texts(self) -> bool:
        return bool(self.settings.short > 0)
