"""Optimisers from their recipes, and the rate of a step: warm-up, then cosine decay or none."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from kenthash.training.recipe import OptimizerRecipe


def make_optimizer(recipe: OptimizerRecipe, groups: list[tuple[list[nn.Parameter], float]]) -> Optimizer:
    """An optimiser over groups of (parameters, rate). Fused kernels: one call a step instead of one a tensor."""
    parts: list[dict[str, Any]] = [{"params": params, "lr": lr, "base_lr": lr} for params, lr in groups if params]
    if recipe.name == "sgd":
        return torch.optim.SGD(parts, momentum=recipe.momentum, weight_decay=recipe.weight_decay, fused=True)
    kind = torch.optim.AdamW if recipe.name == "adamw" else torch.optim.Adam
    betas = (recipe.beta1, recipe.beta2)
    return kind(parts, betas=betas, eps=recipe.eps, weight_decay=recipe.weight_decay, fused=True)


def rate_factor(recipe: OptimizerRecipe, step: int, steps: int) -> float:
    """What the base rate is multiplied by at `step` (from 0) of `steps`."""
    warm = math.ceil(recipe.warmup * steps)
    if step < warm:
        return (step + 1) / warm
    if recipe.decay == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1)))


def set_rate(optimizer: Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor


def clip_each(parameters: Iterable[nn.Parameter], largest: float | None) -> Tensor:
    """Scale down every tensor's gradient whose norm exceeds `largest`, each by itself, as the field does.

    Returns the norm of all gradients together, before.
    """
    grads = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack(torch._foreach_norm(grads))
    if largest is not None:
        torch._foreach_mul_(grads, list((largest / (norms + 1e-6)).clamp(max=1.0)))
    norm: Tensor = norms.norm()
    return norm
