"""nivMF: classes as non-isotropic von Mises-Fisher distributions, trained as ProxyNCA++.

    mean over samples and their classes of −log softmax_c( log p_c(ĥ) / T )

The density, its floor and start of κ and the learned temperature are from the paper and the authors' code, which is for
images of one class each. Ours, as nobody has published it as a hashing method: two modalities under the same proxies,
the mean over the classes of a sample, and two values: T starts at 0.1 and proxies learn at 0.005 (0.01 and 0.05 in that
code, for one class per sample), as both learn better on validation.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from kenthash.losses.infonce import Temperature
from kenthash.methods.base import Batch, Method, Shapes
from kenthash.proxies.nivmf import NivmfProxies


@dataclass(frozen=True)
class Settings:
    concentration: float = 10.0  # κ at the start
    temperature: float = 0.1  # T at the start; it is learned


class Nivmf(Method):
    key = "nivmf"
    title = "nivMF"
    citation = "Kirchhof et al., A Non-isotropic Probabilistic Take on Proxy-based Deep Metric Learning, ECCV 2022"
    fidelity = "reconstruction"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "proxy_optimizer": {"name": "adam", "lr": 0.005, "warmup": 0.0, "decay": "constant"},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.proxies = NivmfProxies(shapes.classes, shapes.bits, settings.concentration)
        self.temperature = Temperature(settings.temperature)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        scores = self.proxies.scores(normalize(torch.cat([batch.x, batch.t]))) / self.temperature()
        share = normalize(batch.labels, p=1)
        return {"proxy": 2 * cross_entropy(scores, share.repeat(2, 1))}

    def weights(self) -> dict[str, float]:
        return {"proxy": 1.0}

    def measures(self) -> dict[str, Tensor]:
        return {"kappa": self.proxies.kappa().detach().mean(1), "temperature": self.temperature().detach()}
