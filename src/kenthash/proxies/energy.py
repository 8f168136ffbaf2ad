"""The anisotropic energy score of Kent proxies (KDPH, section "Anisotropic Energy Scoring and Parameterization").

S(z, c) = κ_c μ_cᵀz + Σ_i β_ci (γ_ciᵀz)² − log(κ_c + ‖β_c‖₁)
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Projections worked on together: few enough to stay in the processor's cache between the passes over them.
BLOCK = 2**18


def energy(z: Tensor, frames: Tensor, concentration: Tensor, shape: Tensor) -> Tensor:
    """Scores [B, C] of unit vectors z [B, K] for frames [C, K, 1+axes] (μ first), κ [C] and β [C, axes].

    One class with μ and γ along the first two coordinates, κ = 4 and β = 2: along μ, along γ, and across both.

        >>> scores = energy(torch.eye(3), torch.eye(3)[None, :, :2], torch.tensor([4.0]), torch.tensor([[2.0]]))
        >>> (scores + torch.tensor(4.0 + 2.0).log()).flatten().round(decimals=4)
        tensor([4., 2., 0.])
    """
    scores: Tensor = _Energy.apply(z, frames.mT, torch.cat([concentration[:, None], shape], -1))  # type: ignore[no-untyped-call]
    return scores


class _Energy(torch.autograd.Function):
    """The scores from frames as rows R [C, 1+axes, K] and weights w = [κ, β] [C, 1+axes].

    Written by hand because the projections P = Rz [C, 1+axes, B] are the largest array of a training step: they are
    kept once, and all passes over them go block by block. With g the gradient of the scores, T = [g, 2gP] (first row
    linear, the others squared) and D = Tz, the gradients are w∘D for R, Σ_k R∘D (halved for β) for w, Tᵀ(w∘R) for z.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
        classes, columns, bits = rows.shape
        rows = rows.contiguous()
        total = weights.sum(-1)
        projections = z.new_empty(classes, columns, len(z))
        scores = (-total.log())[:, None, None].expand(-1, 1, len(z)).clone()
        for block in _blocks(classes, columns * len(z)):
            p = projections[block]
            torch.mm(rows[block].view(-1, bits), z.mT, out=p.view(-1, len(z)))
            squares = p.square()
            squares[:, 0] = p[:, 0]
            scores[block].baddbmm_(weights[block, None], squares)
        ctx.save_for_backward(z, rows, weights, total, projections)
        return scores[:, 0].mT.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z, rows, weights, total, projections = ctx.saved_tensors
        classes, columns, bits = rows.shape
        g = grad.mT.contiguous()
        dz = torch.zeros_like(z)
        drows = torch.empty_like(rows)
        dweights = torch.empty_like(weights)
        for block in _blocks(classes, columns * len(z)):
            r, w = rows[block], weights[block, :, None]
            t = projections[block] * (2 * g[block, None])
            t[:, 0] = g[block]
            t = t.view(-1, len(z))
            d = torch.mm(t, z).view_as(r)
            dz.addmm_(t.mT, (w * r).view(-1, bits))
            torch.mul(w, d, out=drows[block])
            torch.sum(d.mul_(r), -1, out=dweights[block])
        dweights[:, 1:] *= 0.5
        dweights -= (g.sum(-1) / total)[:, None]
        return dz, drows, dweights


def _blocks(classes: int, size: int) -> Iterator[slice]:
    """Runs of classes that have `size` projections each."""
    step = max(1, BLOCK // max(1, size))
    for start in range(0, classes, step):
        yield slice(start, start + step)
