"""The file of an item's picture: only one that lies in a folder that was indexed, wherever links lead.

An index made from a folder has ids of the form `folder/path below it`, and the full path in the metadata; so the
folder follows from the two. Of items that came another way it is the one that the file lies in. The path comes from
whoever made the index: requests cannot set it.
"""

from dataclasses import dataclass
from pathlib import Path, PurePath

from kenthash.data.pictures import SUFFIXES
from kenthash.search.engine import Item
from kenthash.service.problems import Problem

OURS = ("path", "size", "mtime", "digest")  # metadata that `index add` keeps for itself; not shown, not set by requests


@dataclass(frozen=True)
class Picture:
    path: Path
    size: int
    mtime_ns: int


def root_of(id: str, path: PurePath) -> PurePath:
    """The indexed folder."""
    parts = PurePath(id).parts
    if len(parts) > 1 and path.parts[-len(parts) :] == parts:
        return PurePath(*path.parts[: len(path.parts) - len(parts) + 1])
    return path.parent


def picture_of(item: Item, allowed: tuple[Path, ...]) -> Picture:
    """Where an item's picture is; a problem where it has none, or none that may be shown."""
    told = item.metadata.get("path")
    if not isinstance(told, str) or not told:
        raise Problem("not-found", "this item has no picture")
    try:
        path = Path(told).resolve(strict=True)
        root = Path(root_of(item.id, PurePath(told))).resolve(strict=True)
        about = path.stat()
    except (OSError, ValueError, RuntimeError) as error:
        raise Problem("not-found", "the picture is not there any more: bring the index up to date") from error
    inside = path.is_relative_to(root) and (not allowed or any(path.is_relative_to(folder) for folder in allowed))
    if not PurePath(told).is_absolute() or not inside or not path.is_file() or path.suffix.lower() not in SUFFIXES:
        raise Problem("not-found", "the picture is not in a folder that was indexed")
    return Picture(path, about.st_size, about.st_mtime_ns)
