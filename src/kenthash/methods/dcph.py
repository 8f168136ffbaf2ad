"""DCPH: deep cross-modal proxy hashing. A binary code for every class first, then samples near the codes of theirs.

Stage one learns the class codes from the classes alone, by a label network C→4096→K over one-hot rows,

    mean_cc' max(0, cos(b_c, b_c') − [c = c'])² + α‖Σ_c b_c‖²/C + β Σ_c ‖sign(b_c) − b_c‖²/C,  α = 0.05, β = 1

and stage two holds sign(b_c) fixed. Here stage one runs in the first 200 steps of training and its loss reaches only
the label network, while the heads already follow the codes of the moment; after that the codes stay.

From the paper (margin-dynamic-softmax loss) and from public code that builds on it (DFPH), which has the values and,
commented out, stage one. Changed: that code divides by zero for a sample without labels, and takes the text's cross
term against a stale variable; the binary target sign(x + t) is of the present batch, not of the last epoch. The heads
have the shared recipe: the SGD rates in that code were for fine-tuning AlexNet and a bag of words.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from kenthash.losses.quantisation import signs
from kenthash.methods.base import Batch, Method, Shapes


@dataclass(frozen=True)
class Settings:
    gamma: float = 0.3  # γ, sharpness of the softmax
    sigma: float = 0.3  # σ, the margin, as a share of K
    cross: float = 0.1  # weight of the cross-modal term
    quantisation: float = 0.1
    balance: float = 0.05  # α
    decision: float = 1.0  # β
    code_steps: int = 200  # steps of stage one


class Dcph(Method):
    key = "dcph"
    title = "DCPH"
    citation = "Tu et al., Deep Cross-Modal Proxy Hashing, TKDE 2022"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "proxy_optimizer": {"name": "sgd", "lr": 0.01, "weight_decay": 1e-5, "warmup": 0.0, "decay": "constant"},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.network = nn.Sequential(
            nn.Linear(shapes.classes, 4096),
            nn.ReLU(),
            nn.BatchNorm1d(4096, track_running_stats=False),  # its batch is always the same: all classes
            nn.Linear(4096, shapes.bits),
            nn.Tanh(),
        )
        self.codes: Tensor
        self.step: Tensor
        self.register_buffer("codes", torch.zeros(shapes.classes, shapes.bits))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        terms = self._learn_codes() if self.step < self.settings.code_steps else {}
        x, t = batch.x, batch.t
        own_x, whole_x = self._parts(x, batch.labels)
        own_t, whole_t = self._parts(t, batch.labels)
        # The other modality as the code it has now, which takes no gradient.
        _, fixed_x = self._parts(signs(x), batch.labels)
        _, fixed_t = self._parts(signs(t), batch.labels)
        target = signs(x + t)
        terms["proxy"] = (whole_x - own_x + whole_t - own_t).mean()
        terms["cross"] = (fixed_t - own_x + fixed_x - own_t).mean()
        terms["quantisation"] = ((target - x).square() + (target - t).square()).sum(1).mean()
        return terms

    def _parts(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return margin_softmax_parts(
            outputs, self.codes, labels, self.settings.gamma, self.settings.sigma * self.shapes.bits
        )

    def _learn_codes(self) -> dict[str, Tensor]:
        """The terms of stage one, and the signs of what it has come to."""
        classes = self.shapes.classes
        identity = torch.eye(classes, device=self.codes.device)
        outputs = self.network(identity)
        self.codes.copy_(signs(outputs))
        self.step += 1
        unit = normalize(outputs)
        return {
            "code_separation": (unit @ unit.T - identity).clamp(min=0).square().mean(),
            "code_balance": outputs.sum(0).square().sum() / classes,
            "code_decision": (self.codes - outputs).square().sum(1).mean(),
        }

    def weights(self) -> dict[str, float]:
        s = self.settings
        return {
            "proxy": 1.0,
            "cross": s.cross,
            "quantisation": s.quantisation,
            "code_separation": 1.0,
            "code_balance": s.balance,
            "code_decision": s.decision,
        }


def margin_softmax_parts(
    outputs: Tensor, codes: Tensor, labels: Tensor, gamma: float, margin: float
) -> tuple[Tensor, Tensor]:
    """The margin-dynamic-softmax loss over the codes of classes, as the logarithms of numerator and denominator, each
    [N], for outputs [N, K] and class codes [C, K]:

        −log [ e^{γ(s⁺−σ)} / (e^{γ(s⁺−σ)} + Σ_c e^{γ(1−y_c) ⟨h, b_c⟩}) ],
        s⁺ = mean of ⟨h, b_c⟩ over the sample's classes

    The sum is over all classes: those of the sample itself add e⁰ = 1 each, as in public code.
    """
    products = outputs @ codes.T
    positive = gamma * ((products * labels).sum(1) / labels.sum(1).clamp(min=1) - margin)
    others = (gamma * (1 - labels) * products).logsumexp(1)
    return positive, positive.logaddexp(others)
