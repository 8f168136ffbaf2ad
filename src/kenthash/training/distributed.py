"""Several processes that learn one model: `torchrun --nproc-per-node 2 -m kenthash train ...`.

Each process encodes its slice of the global batch; the outputs are gathered, so that every loss term sees the whole
batch. Every process then computes the same loss, and the gradient that reaches its own slice is exactly its share:
heads add up their gradients over the processes, proxies already agree. That is the model which one process learns
from the same global batch, up to the order of additions.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kenthash.errors import UsageError


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the group that torchrun started, if it did; leave it at the end."""
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def own_slice(batch: int) -> slice:
    """The rows of a global batch that this process encodes."""
    world = world_size()
    if batch % world:
        raise UsageError(f"batch: {batch} items cannot be shared by {world} processes: use a multiple of {world}")
    size = batch // world
    return slice(rank() * size, (rank() + 1) * size)


class _Gather(torch.autograd.Function):
    """All slices in the order of ranks; the gradient keeps its own slice."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, own: Tensor) -> Tensor:
        parts = [torch.empty_like(own) for _ in range(world_size())]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> Tensor:
        return grads[0][own_slice(len(grads[0]))]


def gather(own: Tensor) -> Tensor:
    if world_size() == 1:
        return own
    gathered: Tensor = _Gather.apply(own)  # type: ignore[no-untyped-call]
    return gathered


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients of what each process fed with its own slice: heads and a trainable encoder."""
    if world_size() == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)


def wait_for_all() -> None:
    if world_size() > 1:
        dist.barrier()
