"""Chaotic oscillation of proxies, as the paper's appendix measures it: the flip rate and the Chaos Index.

Flip rate: the share of samples that change their nearest proxy from one epoch to the next.

    R_flip^(t) = 1/N Σ_i [ a_i^(t) ≠ a_i^(t−1) ],   a_i = argmax_c S(z_i, c)

The paper does not say what "nearest" means for a distribution. Here it is the class of the highest score under the
method's own S: the cosine for a point, the Kent energy for KDPH.

Chaos Index: four kinematic parts of a proxy's path p_0, ..., p_T through training, with the steps s_t = p_t − p_{t−1}.

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

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kenthash.analysis.precision import class_average_precision, precision_at_nearest
from kenthash.analysis.subject import Subject, mean_over_seeds
from kenthash.codes import pack
from kenthash.errors import UsageError
from kenthash.evaluation import Labels, Scores

Assignment = NDArray[np.integer]  # [N] the nearest proxy of each sample

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
        """0 for a straight path of even steps; 1 for a path without any order."""
        order = (self.efficiency, (self.consistency + 1) / 2, (self.autocorrelation + 1) / 2)
        return (self.entropy + sum(1 - part for part in order)) / 4


def chaos(path: NDArray[np.floating]) -> Chaos:
    """The parts for one path [T+1, K] with T ≥ 2 steps. A proxy that never moves has no chaos in any part."""
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


def flip_rate(before: Assignment, after: Assignment) -> float:
    """Share of the samples whose nearest proxy has changed."""
    return float(np.mean(before != after))


def flip_rate_by_class(before: Assignment, after: Assignment, labels: Labels) -> Scores:
    """The same among the samples that carry each class [C]; NaN for a class that none carries."""
    carried = labels != 0
    flipped = (carried & (before != after)[:, None]).sum(axis=0)
    samples = carried.sum(axis=0)
    return np.where(samples > 0, flipped / np.maximum(samples, 1), np.nan)


@dataclass(frozen=True)
class Dynamics:
    """Of one method, mean over seeds. Column t of `precision` is after epoch t+1, of `flips` from there to the next."""

    title: str
    flips: Scores  # [C, T-1]
    all_flips: Scores  # [T-1]
    precision: Scores  # [C, T]

    def second_half(self, curve: Scores) -> Scores:
        """Mean over the second half of training."""
        return np.asarray(curve[..., curve.shape[-1] // 2 :].mean(axis=-1))

    @property
    def precision_steps(self) -> Scores:
        """[C] mean change of the precision from epoch to epoch in the second half: how jagged its curve is."""
        return self.second_half(np.abs(np.diff(self.precision, axis=1)))


def dynamics(subjects: Sequence[Subject]) -> Dynamics:
    """Of the runs of one method, one per seed. The flip rate is over recorded training items, each as an image and as a
    text. Precision is the average precision of a class: validation items that carry it are the queries, the recorded
    training items are the database, with the codes of the epoch; mean of both directions."""
    flips, all_flips, precision = [], [], []
    for subject in subjects:
        record = subject.record
        n = len(record.train)
        labels, query_labels = subject.labels[record.train], subject.labels[record.validation]
        nearest = [np.concatenate([e.nearest_image[:n], e.nearest_text[:n]]) for e in record.epochs[1:]]
        pairs = list(itertools.pairwise(nearest))
        flips.append(np.stack([flip_rate_by_class(a, b, np.tile(labels, (2, 1))) for a, b in pairs], axis=1))
        all_flips.append(np.array([flip_rate(a, b) for a, b in pairs]))
        curves = []
        for epoch in record.epochs[1:]:
            image, text = pack(epoch.image), pack(epoch.text)
            directions = ((image[n:], text[:n]), (text[n:], image[:n]))
            curves.append(np.mean([class_average_precision(q, d, query_labels, labels) for q, d in directions], axis=0))
        precision.append(np.stack(curves, axis=1))
    return Dynamics(subjects[0].title, *(mean_over_seeds(parts) for parts in (flips, all_flips, precision)))


@dataclass(frozen=True)
class Kinematics:
    """Of one method per class [C], mean over seeds."""

    title: str
    index: Scores
    parts: dict[str, Scores]
    precision: Scores  # at 50, mean of both directions


def kinematics(subjects: Sequence[Subject]) -> Kinematics:
    """Of the runs of one method, one per seed."""
    runs = [[chaos(path) for path in subject.record.paths] for subject in subjects]
    precision = [precision_at_nearest(subject) for subject in subjects]
    return Kinematics(
        subjects[0].title,
        np.mean([[c.index for c in run] for run in runs], axis=0),
        {part: np.mean([[getattr(c, part) for c in run] for run in runs], axis=0) for part in PARTS},
        mean_over_seeds(precision),
    )
