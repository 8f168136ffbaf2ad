"""The cross-modal ranking loss of UCCH (section "Cross-Modal Ranking Learning")."""

from torch import Tensor
from torch.nn.functional import normalize


def cross_ranking(x: Tensor, t: Tensor, margin: float, shift: float) -> Tensor:
    """Pairs above all other combinations, over cosines c_ij of x_i and t_j, both [B, K]:

        1/B Σ_i [ m − c_ii + log Σ_j e^{s_ij} ], and the same over the columns;
        s_ij = c_ij where c_ij ≥ c_ii − m, else c_ij − `shift`

    All negatives count, those farther off than the margin m less, by e^−shift: so the few that are in truth of the
    same kind do not decide, as they would in a loss of the hardest negative.

    Example, of which every cosine is 1:

        >>> import torch
        >>> cross_ranking(torch.ones(4, 8), torch.ones(4, 8), margin=0.2, shift=0.1)  # 2 (0.2 + log 4)
        tensor(3.1726)
    """
    cosines = normalize(x) @ normalize(t).T
    own = cosines.diagonal()
    loss = 2 * (margin - own).mean()
    for scores in (cosines, cosines.T):
        far = scores < (own - margin)[:, None]
        loss = loss + (scores - shift * far).logsumexp(1).mean()
    return loss
