"""The Householder quantisation loss: how undecided bits are (Schwengber et al., arXiv 2311.04207).

    mean over samples and bits of F(z)(1 − F(z)),  F the logistic function

That is the variance of a bit which is 1 with probability F(z): small where every z lies far from 0.
"""

from torch import Tensor


def bit_variance(z: Tensor) -> Tensor:
    chance = z.sigmoid()
    return (chance * (1 - chance)).mean()
