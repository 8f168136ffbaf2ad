"""DSPH: deep semantic-aware proxy hashing. Point proxies, and unrelated samples kept a code's distance apart."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from kenthash.losses.irrelevance import irrelevance
from kenthash.losses.proxy_cosine import proxy_cosine
from kenthash.losses.thresholds import code_threshold
from kenthash.methods.base import Batch, Method, Shapes
from kenthash.proxies.point import PointProxies


@dataclass(frozen=True)
class Settings:
    alpha: float = 0.8  # weight of the irrelevance term, as in the public code


class Dsph(Method):
    key = "dsph"
    title = "DSPH"
    citation = "Huo et al., Deep Semantic-aware Proxy Hashing for Multi-label Cross-modal Retrieval, TCSVT 2023"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "proxy_optimizer": {
            "name": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 5e-4, "warmup": 0.0, "decay": "constant",
        },
    }  # fmt: skip
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {
        "batch": (64, 128),  # 64 in the public code
        "optimizer.name": ("adamw",),
        "optimizer.weight_decay": (0.0, 0.2),  # 0.2 in the public code
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.proxies = PointProxies(shapes.classes, shapes.bits)
        self.threshold = code_threshold(shapes.bits, shapes.classes)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        scores = self.proxies.scores(normalize(torch.cat([batch.x, batch.t])))
        x, t = scores.chunk(2)
        return {
            "proxy": proxy_cosine(x, batch.labels, self.threshold) + proxy_cosine(t, batch.labels, self.threshold),
            "irrelevance": irrelevance(batch.x, batch.t, batch.labels, threshold=self.threshold, multi_label_only=True),
        }

    def weights(self) -> dict[str, float]:
        return {"proxy": 1.0, "irrelevance": self.settings.alpha}
