"""Whether the proxies of related classes are close: similarity within and between groups of classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kenthash.analysis.subject import Subject, mean_over_seeds
from kenthash.evaluation import Scores

ByGroup = dict[str, "GroupTopology"]


@dataclass(frozen=True)
class GroupTopology:
    """Of one group g, by cosines of class directions. `intra` is NaN for a group of one class, which has no pair."""

    classes: int
    intra: float  # mean over pairs of different classes, both in g
    inter: float  # mean over pairs of a class in g and a class of another group

    @property
    def separation(self) -> float:
        return self.intra - self.inter


def unit(rows: NDArray[np.floating]) -> Scores:
    """Rows scaled to length 1."""
    values = np.asarray(rows, np.float64)
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12))


def cosines(means: NDArray[np.floating]) -> Scores:
    """[C, C] of class directions [C, K]."""
    directions = unit(means)
    return np.asarray(directions @ directions.T)


def group_topology(means: NDArray[np.floating], groups: Mapping[str, Sequence[int]]) -> ByGroup:
    """By the name of each group. Classes that are in no group are ignored."""
    similarity = cosines(means)
    result: ByGroup = {}
    for name, members in groups.items():
        inside = np.asarray(members)
        outside = np.array([c for other, cs in groups.items() if other != name for c in cs], np.int64)
        within = similarity[np.ix_(inside, inside)]
        pairs = within[~np.eye(len(inside), dtype=bool)]
        across = similarity[np.ix_(inside, outside)]
        result[name] = GroupTopology(
            len(inside),
            float(pairs.mean()) if pairs.size else float("nan"),
            float(across.mean()) if across.size else float("nan"),
        )
    return result


def nearest_proxy_cosine(means: NDArray[np.floating]) -> Scores:
    """[C] cosine of each class to the class that is nearest to it: near 1 where two proxies coincide."""
    similarity = cosines(means)
    np.fill_diagonal(similarity, -np.inf)
    return np.asarray(similarity.max(axis=1))


def topologies(subjects: Sequence[Subject], groups: Mapping[str, Sequence[int]]) -> ByGroup:
    """Each group's topology after the last epoch, mean over the runs of one method, one per seed."""
    runs = [group_topology(subject.means, groups) for subject in subjects]

    def mean(name: str, part: str) -> float:
        return float(mean_over_seeds([getattr(run[name], part) for run in runs]))

    return {name: GroupTopology(len(groups[name]), mean(name, "intra"), mean(name, "inter")) for name in groups}
