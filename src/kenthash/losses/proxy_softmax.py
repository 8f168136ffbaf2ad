"""Each positive class against all negative ones, by softmax: the proxy term of KAPH."""

import torch
from torch import Tensor
from torch.nn.functional import softplus


def proxy_softmax(scores: Tensor, labels: Tensor) -> Tensor:
    """mean_i 1/|P_i| Σ_{p∈P_i} −log( e^{s_ip} / (e^{s_ip} + Σ_{n∈N_i} e^{s_in}) ).

    `scores` [B, C], `labels` multi-hot [B, C]. Labels of one sample do not compete with each other, as they would in
    a plain softmax. A hinge has no gradient once a class is a margin ahead; here the gradient only gets smaller.
    Samples without a label are left out; a batch of such samples gives 0.

    Example:

        >>> labels = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
        >>> proxy_softmax(torch.zeros(1, 4), labels).exp().round(decimals=3)  # each is one against two: 1/3
        tensor(3.)
    """
    positive = labels > 0
    against = torch.where(positive, -torch.inf, scores).logsumexp(-1, keepdim=True)
    # A sample that has every class has nothing to lose against: −∞ would turn into NaN in the gradient.
    against = torch.where(positive.all(-1, keepdim=True), scores.detach().min() - 100, against)
    number = positive.sum(-1)
    each = torch.where(positive, softplus(against - scores), 0).sum(-1) / number.clamp(min=1)
    return each.sum() / (number > 0).sum().clamp(min=1)
