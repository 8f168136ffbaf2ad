"""TensorBoard events of a run: every loss term, the gradient's norm, what the method watches, the balance of bits."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class Events:
    """Writes to `folder`; a process that is not the first of its group writes nothing."""

    def __init__(self, folder: Path, write: bool) -> None:
        self._writer: Any = None
        if write:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def measures(self, step: int, values: dict[str, Tensor]) -> None:
        """The mean, and the histogram of what has more than one value."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{name}/mean", value.mean().item(), step)
                if value.numel() > 1:
                    self._writer.add_histogram(f"{name}/all", value.cpu().numpy().ravel(), step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def balance(outputs: NDArray[np.float32]) -> float:
    """Mean over bits of |share of ones - 1/2| * 2: 0 where every bit is fair, 1 where every bit is constant."""
    return float(np.abs(2 * (outputs >= 0).mean(axis=0) - 1).mean())
