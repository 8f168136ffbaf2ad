"""DPBE: the weights of the last layer as a distribution, and codes that stay similar under it.

For (x, x), (t, t) and (x, t), the cosines of outputs should be those of the labels,

    mean_ij (cos(h_i, h_j) − A_ij)²,   A_ij = 2σ(y_i · y_j) − 1,

not for one set of weights but for samples of them. Their distribution is normal around the learned weights with the
variances 1/(H + 1), H the diagonal of the loss's curvature (Laplace's approximation, as in Warburg et al., Bayesian
Metric Learning, NeurIPS 2023). In each step H becomes 0.999 H + N²/5000 · mean_i (∂ĥ/∂w)², from N training items on.

A reconstruction after the authors' code. There the layer is linear, its outputs are scaled to unit length and five sets
of weights are drawn in each step. Here the outputs are those of the field's head without dropout, a tanh that is
undone before the noise. A method sees outputs and not weights; so the noise that sampled weights would bring into an
output, normal with the variance Σ_d f_d²/(H_kd + 1) for the vector f, is drawn for each item by itself. Vectors are
scaled to a mean square of 1, about what the head sees. Mended: the code overwrites the loss of each sample by that of
the next, and here all count. Its codes are the signs of the mean over five samples, here those of the mean weights.

On frozen vectors its codes of 16 bits stay behind those of DSPH; neither the authors' batch of 300 nor three times as
many epochs change that. Its real outputs rank items as well as DSPH's do, but signing them costs it twice as much:
A_ij is never below 0, so that all outputs share a direction and each bit has one value more often than the other, and
nothing draws outputs to their signs. The noise has little part in it: H grows by about 1,000 in a step, and after one
epoch the noise is 7 % of the outputs.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method, Shapes

PAIRS = 5000  # of items, which the authors' code computes the curvature from
LARGEST = 1 - 1e-6  # outputs beyond this are at the end of the tanh


@dataclass(frozen=True)
class Settings:
    samples: int = 5
    memory: float = 0.999  # what is kept of H in a step


class Dpbe(Method):
    key = "dpbe"
    title = "DPBE"
    # The authors' public repository names the paper and not its authors.
    citation = (
        "QinLab-WFU, Deep Probabilistic Binary Embedding via Learning Reliable Uncertainty for Cross-Modal Retrieval, "
        "doi 10.1145/3746027.3754811, MM 2025"
    )
    fidelity = "reconstruction"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {"head": {"dropout": 0.0}, "optimizer": FIELD_OPTIMIZER}

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        for name, dim in (("image", shapes.image_dim), ("text", shapes.text_dim)):
            # One column more than the vectors have dimensions: the bias.
            self.register_buffer(f"{name}_curvature", torch.full((shapes.bits, dim + 1), float(shapes.items)))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        target = label_affinity(batch.labels)
        x, t = (
            self._samples(outputs, features, self.get_buffer(f"{name}_curvature"))
            for name, outputs, features in (
                ("image", batch.x, batch.image_features),
                ("text", batch.t, batch.text_features),
            )
        )

        def loss(a: Tensor, b: Tensor) -> Tensor:
            return (a @ b.mT - target).square().mean()

        return {"inter": loss(x, t), "intra": loss(x, x) + loss(t, t)}

    def _samples(self, outputs: Tensor, features: Tensor, curvature: Tensor) -> Tensor:
        """Unit outputs [S, B, K] of sampled weights; H is carried on by what they curve."""
        values = outputs.clamp(-LARGEST, LARGEST).atanh()
        squares = squared_inputs(features)
        deviation = output_variance(squares, curvature).sqrt()
        noise = torch.randn((self.settings.samples, *values.shape), dtype=values.dtype, device=values.device)
        samples = values + deviation * noise
        with torch.no_grad():
            scale = self.shapes.items**2 / PAIRS
            grown = torch.stack([curvature_of(sample, squares) for sample in samples]).mean(0)
            curvature.mul_(self.settings.memory).add_(scale * grown)
        return normalize(samples, dim=-1)

    def weights(self) -> dict[str, float]:
        return {"inter": 1.0, "intra": 1.0}


def label_affinity(labels: Tensor) -> Tensor:
    """A_ij = 2σ(y_i · y_j) − 1: 0 where no label is shared, .46, .76, .91 ... for one, two, three shared labels."""
    return 2 * (labels @ labels.T).sigmoid() - 1


def squared_inputs(features: Tensor) -> Tensor:
    """[B, D + 1]: the squares of what a layer is given: vectors scaled to a mean square of 1, and 1 for the bias."""
    scaled = features / features.square().mean(1, keepdim=True).sqrt().clamp(min=1e-6)
    return pad(scaled.square(), (0, 1), value=1.0)


def output_variance(squares: Tensor, curvature: Tensor) -> Tensor:
    """[B, K]: the variance of an output whose weights have the variances 1/(H + 1), H [K, D + 1]."""
    return squares @ (1 / (curvature + 1)).T


def curvature_of(values: Tensor, squares: Tensor) -> Tensor:
    """[K, D + 1]: the mean over items of Σ_j (∂ĥ_j/∂w_kd)², ĥ = h/‖h‖ and h = Wf:

    f_d² (1 − ĥ_k²) / ‖h‖²
    """
    length = values.square().sum(1, keepdim=True).clamp(min=1e-12)
    slopes = (1 - values.square() / length) / length
    return slopes.T @ squares / len(values)
