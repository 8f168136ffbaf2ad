"""DCPH's margin-dynamic-softmax loss over the codes of classes (Tu et al., TKDE 2022).

    −log [ e^{γ(s⁺−σ)} / (e^{γ(s⁺−σ)} + Σ_c e^{γ(1−y_c) ⟨h, b_c⟩}) ],  s⁺ = mean of ⟨h, b_c⟩ over the sample's classes

The sum runs over all classes: those of the sample itself add e⁰ = 1 each, as in public code.
"""

from torch import Tensor


def margin_softmax_parts(
    outputs: Tensor, codes: Tensor, labels: Tensor, gamma: float, margin: float
) -> tuple[Tensor, Tensor]:
    """The logarithms of numerator and denominator, each [N], for outputs [N, K] and class codes [C, K]."""
    products = outputs @ codes.T
    positive = gamma * ((products * labels).sum(1) / labels.sum(1).clamp(min=1) - margin)
    others = (gamma * (1 - labels) * products).logsumexp(1)
    return positive, positive.logaddexp(others)
