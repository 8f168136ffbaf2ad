"""Multi-modal irrelevance: samples without a common label are pushed apart (DSPH; KDPH, "Multi-Modal Irrelevance
Regularization")."""

import torch
from torch import Tensor
from torch.nn.functional import normalize, relu


def irrelevance(
    x: Tensor, t: Tensor, labels: Tensor, threshold: float | None = None, multi_label_only: bool = False
) -> Tensor:
    """The mean over pairs (i, j) with no common label, summed over (x, x), (t, t) and (x, t):

        Σ_{(u,v)} mean_{y_i·y_j = 0} cos(u_i, v_j)                as the paper prints it
        Σ_{(u,v)} mean_{y_i·y_j = 0} max(0, cos(u_i, v_j) − τ)    with DSPH's `threshold` τ

    `x` and `t` [B, K] are the two modalities' outputs of any length, `labels` multi-hot [B, C]. With
    `multi_label_only` both samples of a pair must have two labels or more, as in DSPH. A batch without such a pair
    gives 0.

    Example:

        >>> same, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.eye(2)
        >>> irrelevance(same, same, labels)  # cosine 1 in each of (x, x), (t, t) and (x, t)
        tensor(3.)
    """
    labels = labels.to(x.dtype)
    apart = (labels @ labels.mT) == 0
    if multi_label_only:
        several = labels.sum(-1) > 1
        apart = apart & several & several[:, None]
    weights = apart.to(x.dtype) / apart.sum().clamp(min=1)
    z = normalize(torch.cat([x, t]), dim=-1)
    if threshold is None:
        return _mean_cosines(z, weights)
    # One table of cosines for all: [[xx, xt], [tx, tt]]. (t, x) repeats (x, t), so each of the two counts half.
    share = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=x.dtype, device=x.device)
    over = relu(z @ z.mT - threshold).view(2, len(x), 2, len(x))
    return (over * (share[:, None, :, None] * weights[:, None])).sum()


def _mean_cosines(z: Tensor, weights: Tensor) -> Tensor:
    """Σ weights_ij cos_ij without a table of cosines: it is Σ_i u_i · (weights v)_i."""
    x, t = z.chunk(2)
    return (x * (weights @ (x + t)) + t * (weights @ t)).sum()
