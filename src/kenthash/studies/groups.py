"""Groups of classes: a JSON file of group name → names of its classes, as `groups.json` beside a feature pack."""

from collections.abc import Sequence
from pathlib import Path

from kenthash.errors import DataError
from kenthash.files import read_json

FILE = "groups.json"


def find_groups(data: Path, given: Path | None) -> Path | None:
    """The file that was named, else the one that lies in the data's folder, else None."""
    if given is not None:
        return given
    return data / FILE if (data / FILE).is_file() else None


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
