"""MIAN: modality-invariant asymmetric networks.

A linear label network gives every item a code from its labels; images and texts learn to agree with the remembered
codes of labels and of their own modality, and labels with those of images and texts, by the pairwise likelihood
(squared, as in the authors' code). Images are variational: the pair loss sees a sample, which also has to predict the
text (cross-entropy), and a KL divergence of 0.01 holds its distribution to a standard normal one.

Losses and values after the authors' code. It sums over N remembered and B batch items; here terms are means, so that
those which are not over pairs get the factor K/N, with N = 10,000 as in the field whatever the size of the set.

It steps the three networks in turn. As every term compares a batch with a memory that takes no gradient, stepping them
together gives each the same gradient, on a memory a step older.

Ours: the code samples a 512-d layer inside the image network, and here the heads are the project's. So the sample is
drawn around the outputs, its variance comes from the features (of unit length, for a stable start), and the text to
predict is its outputs. Codes are the means, where the authors' are sampled. Left out: a label classifier, whose weight
comes to 1e-4. The heads have the shared recipe: the authors' rates were for fine-tuning VGG.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from kenthash.losses.pair_likelihood import pair_likelihood
from kenthash.losses.quantisation import signs
from kenthash.methods.base import Batch, Method, Shapes
from kenthash.methods.pairs import Memory

FIELD_TRAIN = 10_000


@dataclass(frozen=True)
class Settings:
    mutual: float = 50.0  # weight of predicting the text from the image
    divergence: float = 0.01  # weight of the KL divergence within that
    image: float = 0.01  # weights of quantisation, and of each modality's say in the common code
    text: float = 0.99
    label: float = 100.0


class Mian(Method):
    key = "mian"
    title = "MIAN"
    citation = "Zhang et al., Modality-Invariant Asymmetric Networks for Cross-Modal Hashing, TKDE 2022"
    fidelity = "reconstruction"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "optimizer": {"beta2": 0.999, "eps": 1e-8},
        "proxy_optimizer": {"lr": 0.01, "beta2": 0.999, "eps": 1e-8, "warmup": 0.0},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.memory = Memory(("image", "text", "label"), shapes.items, shapes.classes, shapes.bits)
        self.label_network = nn.Linear(shapes.classes, shapes.bits, bias=False)
        nn.init.normal_(self.label_network.weight, std=0.01)
        self.log_variance = nn.Linear(shapes.image_dim, shapes.bits)
        self.predict_text = nn.Linear(shapes.bits, shapes.bits)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        s = self.settings
        x, t, memory = batch.x, batch.t, self.memory
        label = self.label_network(batch.labels)
        log_variance = self.log_variance(normalize(batch.image_features))
        sample = x + (log_variance / 2).exp() * torch.randn_like(x)
        memory.write(batch.items, batch.labels, image=x, text=t, label=label)
        similar = memory.similar(batch.labels)
        common = signs(s.image * x + s.text * t + s.label * label)

        def pairs(outputs: Tensor, *names: str) -> Tensor:
            return torch.stack([pair_likelihood(memory[n], outputs, similar, squared=True) for n in names]).sum()

        return {
            "image": pairs(sample, "label", "image"),
            "text": pairs(t, "label", "text"),
            "label": pairs(label, "image", "text"),
            "mutual": binary_cross_entropy_with_logits(self.predict_text(sample), (1 + t.detach()) / 2),
            "divergence": (x.square() + log_variance.exp() - 1 - log_variance).mean() / 2,
            "image_quantisation": (common - x).square().mean(),
            "text_quantisation": (common - t).square().mean(),
            "label_quantisation": (common - label).square().mean(),
        }

    def weights(self) -> dict[str, float]:
        s = self.settings
        scale = self.shapes.bits / FIELD_TRAIN
        return {
            "image": 1.0,
            "text": 1.0,
            "label": 1.0,
            "mutual": s.mutual * scale,
            "divergence": s.mutual * s.divergence * scale,
            "image_quantisation": s.image * scale,
            "text_quantisation": s.text * scale,
            "label_quantisation": s.label * scale,
        }
