"""DNpH's quadratic spherical mutual information with square clamping (Qin et al., TMM 2024).

    Y_ij = ½(cos(a_i, b_j) + 1),  M = N² / Σ_ij S_ij,  mean_ij [ (S_ij Y_ij − 1)² + Y_ij² / M ]

The authors sum over pairs; the mean is that sum over N² and does not grow with the batch.
"""

from torch import Tensor
from torch.nn.functional import normalize


def spherical_information(a: Tensor, b: Tensor, similar: Tensor) -> Tensor:
    """`a` [N, K] against `b` [N, K] with boolean `similar` [N, N]."""
    closeness = (normalize(a) @ normalize(b).T + 1) / 2
    share = similar.to(closeness.dtype)
    return ((share * closeness - 1).square() + share.mean() * closeness.square()).mean()
