"""Orthonormal frames by the Cayley transform (KDPH, section "Orthogonal Frame Construction via Cayley Transform").

A skew matrix A gives the rotation Q = (I + A)⁻¹(I − A); a class uses the first m columns of Q: its mean direction
and its axes. `full_frames` takes A as published. `thin_frames` takes only what those columns depend on:

    A = [[S, −Bᵀ], [B, 0]],  S skew m × m,  B (K−m) × m
    W = (I + S + BᵀB)⁻¹,     frame = [2W − I; −2BW]

which is X₁ = (I+M)⁻¹(I−M) over X₂ = −B(I+X₁) with M = S + BᵀB, written with one inverse. It spans the same frames
with m(m−1)/2 + (K−m)m numbers and an m × m inverse instead of K(K−1)/2 numbers and a K × K solve.
"""

from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from kenthash.jit import njit_cached

LANES = 32  # matrices inverted side by side, so that the innermost loop is one of vector instructions


def full_frames(a: Tensor, columns: int) -> Tensor:
    """[C, K, columns]: the first columns of (I + A)⁻¹(I − A), for skew A [C, K, K].

    Example:

        >>> full_frames(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]), 2)  # a quarter turn
        tensor([[[ 0.,  1.],
                 [-1.,  0.]]])
    """
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    frames: Tensor = torch.linalg.solve_ex(eye + a, (eye - a)[..., :columns]).result
    return frames


def thin_frames(lower: Tensor, b: Tensor) -> Tensor:
    """[C, K, m] from the strictly lower entries of S [C, m(m−1)/2], row by row, and B [C, K−m, m].

    Example:

        >>> lower, b = torch.randn(4, 3), torch.randn(4, 13, 3)
        >>> torch.allclose(thin_frames(lower, b), full_frames(embed(lower, b), 3), atol=1e-4)
        True
    """
    rows: Tensor = _ThinRows.apply(lower, b.mT)  # type: ignore[no-untyped-call]
    return rows.mT


def skew(lower: Tensor, size: int) -> Tensor:
    """[C, size, size] skew matrices with the given strictly lower entries [C, size(size−1)/2], row by row."""
    entry, sign, _ = _skew_index(size, lower.device)
    if not lower.shape[-1]:
        return lower.new_zeros(*lower.shape[:-1], size, size)
    return (lower.index_select(-1, entry) * sign.to(lower.dtype)).view(*lower.shape[:-1], size, size)


def lower_entries(a: Tensor) -> Tensor:
    """The strictly lower entries of square matrices, row by row: what `skew` takes."""
    row, column = torch.tril_indices(a.shape[-1], a.shape[-1], -1, device=a.device)
    return a[..., row, column]


def embed(lower: Tensor, b: Tensor) -> Tensor:
    """The K × K skew matrix A whose full frame is the thin frame of the same numbers."""
    s = skew(lower, b.shape[-1])
    zero = b.new_zeros(*b.shape[:-2], b.shape[-2], b.shape[-2])
    return torch.cat([torch.cat([s, -b.mT], -1), torch.cat([b, zero], -1)], -2)


def start_deviation(bits: int, columns: int) -> float:
    """The standard deviation of normal entries of S and B that spreads random frames evenly over the sphere.

    A = 0 gives every class the same frame, and a large A brings all near −I. In between lies a variance v at which
    the frame's diagonal, 2W − I, has mean 0. For large K the mean diagonal g of W solves 1/g = 1 + mvg + (K−m)v/(1+mvg)
    (the eigenvalues of a random S and BᵀB); g = 1/2 gives mv/2 = q with 1 − q² = 2q(K−m)/m. The full form has m = K.
    """
    ratio = 2 * (bits - columns) / columns
    q = 2 / (ratio + sqrt(ratio**2 + 4))
    return sqrt(2 * q / columns)


class _ThinRows(torch.autograd.Function):
    """The thin frame from Bᵀ, transposed [C, m, K]: so that all classes' projections of a batch are one product.

    Written by hand because autograd through the inverse costs twice as much. With E = [I; −B] the frame is
    F = 2EW − [I; 0] and W = (S + EᵀE)⁻¹ =: N⁻¹, hence with H = dF Wᵀ: dN = −(F + [I; 0])ᵀH, dS = dN (its skew part)
    and dB = B (dN + dNᵀ) − 2 H₂, H₂ the last K−m rows.
    """

    @staticmethod
    def forward(ctx: Any, lower: Tensor, bt: Tensor) -> Tensor:
        m = bt.shape[1]
        eye = torch.eye(m, dtype=bt.dtype, device=bt.device)
        w = inverse(torch.baddbmm(skew(lower, m) + eye, bt, bt.mT))
        rows = torch.cat([2 * w.mT - eye, torch.bmm(w.mT, bt).mul_(-2)], -1)
        ctx.save_for_backward(bt, w, rows)
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        bt, w, rows = ctx.saved_tensors
        m = bt.shape[1]
        h = torch.bmm(w, grad)  # W dFᵀ
        n = torch.baddbmm(h[..., :m].mT, rows, h.mT, beta=-1, alpha=-1)
        dbt = torch.baddbmm(h[..., m:], n + n.mT, bt, beta=-2)
        below = _skew_index(m, bt.device)[2]
        return (n - n.mT).flatten(1).index_select(1, below), dbt


@cache
@torch.inference_mode(False)  # kept for later calls, which may be in training
def _skew_index(size: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """For every entry of a skew matrix: which number it takes and its sign; and where the numbers lie."""
    row, column = torch.tril_indices(size, size, -1, device=device)
    below, above = row * size + column, column * size + row
    entry = torch.zeros(size * size, dtype=torch.int64, device=device)
    entry[below] = entry[above] = torch.arange(len(below), device=device)
    sign = torch.zeros(size * size, device=device)
    sign[below], sign[above] = 1, -1
    return entry, sign, below


def inverse(matrices: Tensor) -> Tensor:
    """[N, m, m] to [N, m, m], without gradient, for matrices M whose symmetric part (M + Mᵀ)/2 is ⪰ I.

    LAPACK is called once per matrix, which at 9 × 9 costs more than the arithmetic, and with several threads far more.
    On the CPU a compiled loop takes its place. All that elimination leaves of such a matrix keeps a positive symmetric
    part, so it needs no pivoting.
    """
    if matrices.device.type != "cpu":
        inverted: Tensor = torch.linalg.inv_ex(matrices.detach()).inverse
        return inverted
    result = matrices.detach().clone(memory_format=torch.contiguous_format)
    _eliminate(result.numpy())
    return result


@njit_cached(nogil=True, error_model="numpy")
def _eliminate(matrices: NDArray[Any]) -> None:
    """Gauss-Jordan elimination in place, a group of matrices at a time, entry by entry side by side."""
    count, m, _ = matrices.shape
    lanes = min(count, LANES)  # not the constant: LLVM would unroll the loops over it instead of vectorising them
    group = np.empty((m, m, lanes), matrices.dtype)
    factor = np.empty(lanes, matrices.dtype)
    for first in range(0, count, lanes):
        for lane in range(lanes):
            c = min(first + lane, count - 1)  # the last group is filled up with its last matrix
            for i in range(m):
                for j in range(m):
                    group[i, j, lane] = matrices[c, i, j]
        for k in range(m):
            for lane in range(lanes):
                factor[lane] = 1 / group[k, k, lane]
                group[k, k, lane] = 1
            for j in range(m):
                for lane in range(lanes):
                    group[k, j, lane] *= factor[lane]
            for i in range(m):
                if i != k:
                    for lane in range(lanes):
                        factor[lane] = group[i, k, lane]
                        group[i, k, lane] = 0
                    for j in range(m):
                        for lane in range(lanes):
                            group[i, j, lane] -= factor[lane] * group[k, j, lane]
        for lane in range(min(lanes, count - first)):
            for i in range(m):
                for j in range(m):
                    matrices[first + lane, i, j] = group[i, j, lane]
