"""The proxy loss of DSPH: near the points of one's labels, and no nearer than a threshold to the others."""

from torch import Tensor
from torch.nn.functional import relu


def proxy_cosine(scores: Tensor, labels: Tensor, threshold: float) -> Tensor:
    """mean_{y_ik = 1} (1 − c_ik) + mean_{y_ik = 0} max(0, c_ik − t), both over the whole batch (DSPH).

    `scores` are cosines c [B, C], `labels` multi-hot [B, C]. A mean over nothing is 0.

    Example:

        >>> from torch import tensor
        >>> proxy_cosine(tensor([[0.8, 0.5, -0.5]]), tensor([[1.0, 0.0, 0.0]]), threshold=0.1)  # 0.2 + (0.4 + 0) / 2
        tensor(0.4000)
    """
    positive = (labels > 0).to(scores.dtype)
    positives = positive.sum()
    negatives = (scores.numel() - positives).clamp(min=1)
    near = ((1 - scores) * positive).sum() / positives.clamp(min=1)
    far = (relu(scores - threshold) * (1 - positive)).sum() / negatives
    return near + far
