"""Inverses of many small matrices at once.

LAPACK is called once per matrix, which at 9 × 9 costs more than the arithmetic, and with several threads far more. On
the CPU a compiled loop takes its place.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kenthash.jit import njit_cached

LANES = 32  # matrices inverted side by side, so that the innermost loop is one of vector instructions


def inverse(matrices: Tensor) -> Tensor:
    """[N, m, m] to [N, m, m], without gradient, for matrices M whose symmetric part (M + Mᵀ)/2 is ⪰ I.

    All that elimination leaves of such a matrix keeps a positive symmetric part, so it needs no pivoting.
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
