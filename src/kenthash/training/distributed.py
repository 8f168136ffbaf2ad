"""Several processes that learn one model: `torchrun --nproc-per-node 2 -m kenthash train ...`.

Each process encodes its slice of the global batch; the outputs are gathered, so that every loss term sees the whole
batch. Every process then computes the same loss, and the gradient that reaches its own slice is exactly its share:
heads add up their gradients over the processes, proxies already agree. That is the model which one process learns
from the same global batch, up to the order of additions.

A process that is lost ends the others: each says so in one line, and the run goes on from its last checkpoint with
`--resume`, by as many processes as there are then. All processes read the run folder, and the first one writes it.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from kenthash.errors import KenthashError, UsageError


class ProcessLost(KenthashError):
    """Another process of the group has ended, or cannot be reached."""


@contextmanager
def process_group(device: torch.device, out: Path) -> Iterator[None]:
    """Join the group that torchrun started, if it did; leave it at the end. `out` is the run folder."""
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield
        return
    with _reported():
        store, own_rank, size = next(rendezvous("env://"))
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=PrefixStore("group", store), rank=own_rank, world_size=size)
    # torchrun ends the processes that are left when one is lost, and may do so before they notice by themselves.
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
        with _reported():
            _leave_together(store, own_rank, size)
    except ProcessLost as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until this has been printed
        line = f"{error}: go on from the last checkpoint with `kenthash train --resume --out {out}`"
        raise ProcessLost(line) from error
    finally:
        if signal.getsignal(signal.SIGTERM) == _terminated:
            signal.signal(signal.SIGTERM, before)
        dist.destroy_process_group()


def _leave_together(store: Store, rank: int, size: int) -> None:
    """Wait until all processes have come to the end of what they do together, so that none closes its connections while
    another still waits in the last barrier."""
    store.set(f"left/{rank}", "")
    store.wait([f"left/{number}" for number in range(size)])


def own_device(device: torch.device) -> torch.device:
    """Of several GPUs of a machine, the one for this process of it."""
    if device.type != "cuda" or device.index is not None or "LOCAL_RANK" not in os.environ:
        return device
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def _terminated(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise ProcessLost("ended by torchrun, because another process of this run has ended or it was told to stop")


@contextmanager
def _reported() -> Iterator[None]:
    """What PyTorch raises where another process does not answer, as one line."""
    try:
        yield
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:120]
        raise ProcessLost(f"another process of this run has ended or cannot be reached ({reason})") from error


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
        with _reported():
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
    with _reported():
        for parameter in parameters:
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)


def wait_for_all() -> None:
    if world_size() > 1:
        with _reported():
            dist.barrier()
