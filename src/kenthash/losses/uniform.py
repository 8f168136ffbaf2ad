"""Uniform distribution constraint by optimal transport (KDPH, section "Uniform Distribution Constraint for Hashing").

    L = min_π −mean_i ⟨h_i, a_π(i)⟩

over permutations π: the cost of carrying a batch of outputs h [B, K] to fair codes A [B, K]. The transport is found
without gradient, so that each output is drawn to the code it is carried to.
"""

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

EXACT_ROWS = 1024  # up to this many the exact assignment takes at most 1.5 times as long as Sinkhorn's iterations


def uniform(h: Tensor, targets: Tensor) -> Tensor:
    """The constraint for outputs `h` and `targets` as `fair_codes` draws them, one draw for both modalities.

    Exact up to a batch of 1,024, by Sinkhorn's iterations above.

    Example:

        >>> outputs = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
        >>> uniform(outputs, outputs.flip(0))  # each is carried to its own code, which lies in the other row
        tensor(-2.)
    """
    costs = -(h.detach() @ targets.mT)
    if not costs.isfinite().all():
        return -(h * targets).sum(-1).mean()  # nothing can be assigned: the NaN reaches the check of the loss
    carried = exact_targets(costs, targets) if len(h) <= EXACT_ROWS else sinkhorn_targets(costs, targets)
    return -(h * carried).sum(-1).mean()


def fair_codes(h: Tensor) -> Tensor:
    """Random codes of fair ±1 bits, as many and of the same type as the outputs `h`."""
    return torch.randint(0, 2, h.shape, device=h.device).to(h.dtype) * 2 - 1


def exact_targets(costs: Tensor, targets: Tensor) -> Tensor:
    """For every row of `costs` [B, B] the target that the cheapest assignment gives it.

    A KDPH step solves two such assignments, a tenth of its time at the paper's batch of 128 (`kenthash bench train`).
    An algorithm of our own, compiled for such costs, halved that: it made the step 5 % faster at batch 128, 11 % at 256
    and 15 % at 512. It was not worth its 150 lines.
    """
    order = torch.from_numpy(linear_sum_assignment(costs.double().cpu().numpy())[1])
    return targets[order.to(targets.device)]


def sinkhorn_targets(costs: Tensor, targets: Tensor, blur: float = 0.1) -> Tensor:
    """For every row the mean of the targets that an entropic transport plan carries it to (Cuturi 2013).

    `blur` is the strength of the entropy relative to the spread of the costs; at 0.1 the transport costs some 3 % more
    than the exact one.
    """
    import ot  # slow to import, and most runs never get here

    regularisation = blur * costs.std().clamp(min=1e-6)
    # The plan does not change with an offset to a row or column; with zeros in each, no kernel row vanishes.
    costs = costs - costs.amin(1, keepdim=True)
    costs = costs - costs.amin(0, keepdim=True)
    plan: Tensor = ot.bregman.sinkhorn_knopp(
        [], [], costs, float(regularisation), numItermax=50, stopThr=1e-4, warn=False
    )
    return (plan / plan.sum(1, keepdim=True)) @ targets
