"""The Chaos Index of a proxy's path through training, after the paper's appendix on oscillation.

A path is p_0, ..., p_T, its steps are s_t = p_t − p_{t−1}. Four kinematic parts:

    path efficiency           ‖p_T − p_0‖ / Σ_t ‖s_t‖                                     0 to 1
    directional consistency   mean_t cos(s_t, s_{t+1})                                    −1 to 1
    movement entropy          H(step lengths) / log(bins)                                 0 to 1
    autocorrelation           Σ_t s_t·s_{t+1} / √(Σ_{t<T} ‖s_t‖² Σ_{t>1} ‖s_t‖²)          −1 to 1

    Chaos Index = ¼ [ entropy + (1 − efficiency) + (1 − (consistency+1)/2) + (1 − (autocorrelation+1)/2) ]

The paper names the parts and says that the ordered ones are inverted and all are normalised, and leaves the rest
open. Ours: H is the Shannon entropy of a histogram of the step lengths over [0, longest] with ten bins, or with as
many bins as steps where those are fewer, so that steps of one length have entropy 0; the autocorrelation has lag one
and weighs long steps more, which consistency does not; signed parts are mapped to 0 to 1 before they are inverted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import UsageError

BINS = 10
PARTS = ("efficiency", "consistency", "entropy", "autocorrelation")


@dataclass(frozen=True)
class Chaos:
    efficiency: float
    consistency: float
    entropy: float
    autocorrelation: float

    @property
    def index(self) -> float:
        """0: a straight, even path; 1: nothing of it can be foretold."""
        order = (self.efficiency, (self.consistency + 1) / 2, (self.autocorrelation + 1) / 2)
        return (self.entropy + sum(1 - part for part in order)) / 4


def chaos(path: NDArray[np.floating]) -> Chaos:
    """The parts for one path [T+1, K] with T ≥ 2 steps. A proxy that never moves is at rest: no chaos in any part."""
    if len(path) < 3:
        raise UsageError(f"a path of {len(path)} positions has no kinematics: record at least 2 epochs")
    steps = np.diff(np.asarray(path, np.float64), axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    if not lengths.any():
        return Chaos(1.0, 1.0, 0.0, 1.0)
    dots = (steps[:-1] * steps[1:]).sum(axis=1)
    pairs = lengths[:-1] * lengths[1:]
    energy = np.sqrt(np.square(lengths[:-1]).sum() * np.square(lengths[1:]).sum())
    return Chaos(
        efficiency=float(np.linalg.norm(path[-1] - path[0]) / lengths.sum()),
        # A step of length 0 has no direction: it neither keeps nor turns.
        consistency=float(np.divide(dots, pairs, out=np.zeros_like(dots), where=pairs > 0).mean()),
        entropy=_entropy(lengths),
        autocorrelation=float(dots.sum() / energy) if energy > 0 else 0.0,
    )


def _entropy(lengths: NDArray[np.float64]) -> float:
    bins = min(BINS, len(lengths))
    counts = np.histogram(lengths, bins, range=(0.0, lengths.max()))[0]
    share = counts[counts > 0] / len(lengths)
    return float(-(share * np.log(share)).sum() / np.log(bins))
