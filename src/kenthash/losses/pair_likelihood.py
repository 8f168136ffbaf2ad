"""The pairwise likelihood of similarities given inner products (Jiang and Li, DCMH, CVPR 2017), against a memory.

    θ_ij = ½ ⟨f_i, h_j⟩,  −log p(S_ij) = softplus(θ_ij) − S_ij θ_ij,  averaged over all pairs

f are remembered outputs of all N training items and take no gradient, h are the outputs of a batch.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 1024  # rows of the memory worked on together


def pair_likelihood(memory: Tensor, outputs: Tensor, similar: Tensor, squared: bool = False) -> Tensor:
    """`memory` [N, K] against `outputs` [B, K] with boolean `similar` [N, B]; `squared` averages the squares of the
    negative log-likelihoods, which is what MIAN's code does."""
    loss: Tensor = _PairLikelihood.apply(memory, outputs, similar, squared)  # type: ignore[no-untyped-call]
    return loss


class _PairLikelihood(torch.autograd.Function):
    """By hand, because the N × B table is by far the largest array of a step: it is walked over in blocks that stay in
    the processor's cache, and the gradient is taken in the same pass as the value."""

    @staticmethod
    def forward(ctx: Any, memory: Tensor, outputs: Tensor, similar: Tensor, squared: bool) -> Tensor:
        total, slope = outputs.new_zeros(()), torch.zeros_like(outputs)
        for start in range(0, len(memory), BLOCK):
            rows = memory[start : start + BLOCK]
            # u = (1 − 2S) θ, so that log(1 + eᵘ) is the negative log-likelihood of either kind of pair.
            turned = similar[start : start + BLOCK].to(outputs.dtype).neg_().add_(0.5)
            u = (rows @ outputs.T).mul_(turned)
            # log(1 + eᵘ) = max(u, 0) + log(1 + e^−|u|), and its slope is ½ ± (1/(1 + e^−|u|) − ½) with the sign of u:
            # one exponential for both takes half the time of softplus and sigmoid.
            grown = u.abs().neg_().exp_().add_(1)
            losses = grown.log().add_(u.clamp(min=0))
            slopes = grown.reciprocal_().sub_(0.5).copysign_(u).add_(0.5).mul_(turned)
            if squared:
                slopes.mul_(losses).mul_(2)
                losses.square_()
            total += losses.sum()
            slope.addmm_(slopes.T, rows)
        ctx.save_for_backward(slope / similar.numel())
        return total / similar.numel()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None, None]:
        return None, grad * ctx.saved_tensors[0], None, None
