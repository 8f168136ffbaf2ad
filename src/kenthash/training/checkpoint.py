"""Checkpoints: all that training needs to go on, in one file that is whole or not there.

Tensors and a JSON header in the safetensors format; nothing is pickled. A checkpoint stands between two epochs, and
every epoch draws its randomness from (seed, epoch) alone, so no random state needs to be kept.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from kenthash.errors import DataError
from kenthash.files import atomic_write

FILE = "checkpoint.safetensors"


def save_checkpoint(
    folder: Path,
    modules: nn.Module,
    optimizers: dict[str, Optimizer],
    best: dict[str, Tensor],
    progress: dict[str, Any],
) -> None:
    """`progress` is plain JSON: epochs done, history, the digest of the recipe."""
    tensors = {f"module.{name}": value for name, value in modules.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    for key, optimizer in optimizers.items():
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                if value is not None:  # SGD keeps None for momentum that has not begun
                    tensors[f"optimizer.{key}.{index}.{name}"] = value
    ready = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with atomic_write(folder / FILE) as stream:
        stream.write(save(ready, metadata={"progress": json.dumps(progress)}))


def load_checkpoint(
    folder: Path, modules: nn.Module, optimizers: dict[str, Optimizer]
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Put the saved state into `modules` and `optimizers`; returns (best, progress), or None if there is none."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as stored:
            progress = json.loads((stored.metadata() or {})["progress"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        modules.load_state_dict(_entries(tensors, "module."))
        for key, optimizer in optimizers.items():
            _restore(optimizer, _entries(tensors, f"optimizer.{key}."))
        return _entries(tensors, "best."), progress
    except (OSError, SafetensorError, RuntimeError, KeyError, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path}: not a checkpoint of this run: {reason}; remove it to start again") from error


def _restore(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, entry = name.partition(".")
        state.setdefault(int(index), {})[entry] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _entries(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def copy_weights(modules: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in modules.state_dict().items()}
