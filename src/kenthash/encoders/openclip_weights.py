"""Reading checkpoint files from strangers: tensors and nothing else."""

import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from kenthash.errors import KenthashError

# Numbers that OpenAI's own checkpoints keep among the weights.
OPENAI_NUMBERS = frozenset({"input_resolution", "context_length", "vocab_size"})


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a .pt file that holds only tensors (no code is run)."""
    weights: Any
    try:
        if file.suffix == ".safetensors":
            weights = load_file(file)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch remarks on what is refused below
                weights = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises anything on a file that is none of its own: IndexError, KeyError ...
        if "TorchScript" in str(error):
            raise KenthashError(
                f"{file}: is a program (TorchScript), which is not run for safety: take the model as .safetensors, "
                "or save its state_dict() with safetensors.torch.save_file"
            ) from error
        reason = "" if file.suffix == ".safetensors" else " of plain tensors"
        raise KenthashError(f"{file}: not a weights file{reason}: a .safetensors file is safest") from error
    weights = weights.get("state_dict", weights) if isinstance(weights, dict) else weights
    if not _named_tensors(weights):
        raise KenthashError(f"{file}: holds no state_dict of tensors: save the model's state_dict() as .safetensors")
    return {name.removeprefix("module."): value for name, value in weights.items()}


def _named_tensors(weights: object) -> bool:
    if not isinstance(weights, dict) or not weights:
        return False
    return all(isinstance(name, str) and isinstance(value, Tensor) for name, value in weights.items())


def is_by_openai(file: Path) -> bool:
    """By the file's name, or by the three numbers."""
    if "openai" in file.name.lower():
        return True
    if file.suffix == ".safetensors":
        try:
            with safe_open(file, "pt") as stream:
                return set(stream.keys()) >= OPENAI_NUMBERS
        except (OSError, SafetensorError) as error:
            raise KenthashError(f"{file}: not a .safetensors file: {error}") from error
    return read_weights(file).keys() >= OPENAI_NUMBERS


def load_weights(model: nn.Module, file: Path, name: str) -> None:
    """Load a checkpoint of any age that open_clip can convert; every weight must find its place."""
    import open_clip

    weights = read_weights(file)
    try:
        if weights.keys() >= OPENAI_NUMBERS:
            plain = {key: value for key, value in weights.items() if key not in OPENAI_NUMBERS}
            model.load_state_dict(plain, strict=True)
        else:
            del weights  # a second reading is cheaper than twice the memory
            open_clip.load_checkpoint(model, str(file), strict=True, weights_only=True)
    except (RuntimeError, KeyError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[min(1, len(lines) - 1)] if lines else type(error).__name__
        raise KenthashError(f"{file}: does not hold the weights of {name}: {reason[:200]}") from error
