"""Whether the proxies of related classes are close: similarity within and between groups of classes.

Groups are a JSON file of group name → names of its classes, `groups.json` beside a feature pack.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.analysis.subject import Subject, mean_over_seeds
from kenthash.errors import DataError
from kenthash.evaluation import Scores
from kenthash.files import read_json

GROUPS_FILE = "groups.json"

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


def find_groups(data: Path, given: Path | None) -> Path | None:
    """The file that was named, else the one that lies in the data's folder, else None."""
    if given is not None:
        return given
    return data / GROUPS_FILE if (data / GROUPS_FILE).is_file() else None


def read_groups(path: Path, classes: Sequence[str]) -> dict[str, list[int]]:
    """Group name → numbers of its classes. A class may be in no group, not in two; there are at least two groups."""
    groups = read_json(path)
    if not isinstance(groups, dict) or not all(
        isinstance(names, list) and names and all(isinstance(name, str) for name in names) for names in groups.values()
    ):
        raise DataError(f"{path}: must be a JSON object of group name → list of class names")
    number = {name: c for c, name in enumerate(classes)}
    owner: dict[str, str] = {}
    for group, names in groups.items():
        for name in names:
            if name not in number:
                raise DataError(f"{path}: '{name}' of group '{group}' is no class of the data")
            if name in owner:
                raise DataError(f"{path}: '{name}' is in '{owner[name]}' and in '{group}': leave it in one")
            owner[name] = group
    if len(groups) < 2:
        raise DataError(f"{path}: has {len(groups)} groups, and at least 2 are needed to tell them apart")
    return {group: [number[name] for name in names] for group, names in groups.items()}
