"""The picture files below a folder, as they are now."""

import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from kenthash.data.pictures import SUFFIXES
from kenthash.data.readers.folder import metadata_files, read_rows
from kenthash.errors import DataError
from kenthash.search.engine import Metadata
from kenthash.search.metadata import check_metadata

SHOWN = 4  # kinds of files that are named where there are no pictures
NO_PHOTOS = frozenset({"@eaDir"})  # folders in which network disks keep thumbnails


@dataclass(frozen=True)
class PictureFile:
    name: str  # its path below the folder, with slashes
    size: int
    mtime: float


@dataclass
class FolderContent:
    folder: Path
    files: list[PictureFile] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)  # files and folders that could not be read, and why
    rows: dict[str, Metadata] = field(default_factory=dict)  # of metadata files, by the path below the folder


def walk_folder(folder: Path) -> FolderContent:
    """The picture files in order, without hidden ones; links to folders are not followed."""
    folder = folder.resolve()
    if not folder.is_dir():
        is_file = folder.exists()
        raise DataError(
            f"{folder}: {'a file: give the folder that it is in' if is_file else 'there is no such folder'}"
        )
    content, others = FolderContent(folder, rows=metadata_rows(folder)), Counter[str]()

    def unread(error: OSError) -> None:
        content.unread[_below(folder, error.filename)] = error.strerror or type(error).__name__

    for directory, folders, files in os.walk(folder, onerror=unread):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in NO_PHOTOS)
        for path in (Path(directory, name) for name in sorted(files) if not name.startswith(".")):
            if path.suffix.lower() not in SUFFIXES:
                others[path.suffix or path.name] += 1
                continue
            try:
                status = path.stat()
            except FileNotFoundError:  # deleted meanwhile, or a broken link
                continue
            except OSError as error:
                unread(error)
                continue
            if stat.S_ISREG(status.st_mode):
                content.files.append(PictureFile(_below(folder, str(path)), status.st_size, status.st_mtime))
    if not content.files:  # perhaps a disk that is not mounted: its items stay
        raise DataError(
            f"{folder}: no pictures here{_other_files(others)}: give a folder that has some, in it or in folders below "
            "it; nothing was added or dropped"
        )
    return content


def is_excluded(name: str, patterns: Sequence[str]) -> bool:
    """Whether a path below the folder is left out. A pattern without a slash is compared with the name of the file and
    with those of its folders, one with a slash with the path and with those of its folders; * stands for anything.

    Example:

        >>> [is_excluded("2024/drafts/a.jpg", [pattern]) for pattern in ("drafts", "*.jpg", "2024/drafts", "drafts/*")]
        [True, True, True, False]
    """
    parts = name.split("/")
    paths = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    return any(
        fnmatchcase(part, pattern.strip("/")) for pattern in patterns for part in (paths if "/" in pattern else parts)
    )


def metadata_rows(folder: Path) -> dict[str, Metadata]:
    """Metadata by the path of a picture: all keys of its row that an index can keep."""
    rows: dict[str, Metadata] = {}
    for file in metadata_files(folder):
        for _, row in read_rows(file):
            if isinstance(row, dict) and isinstance(row.get("file_name"), str):
                name = _below(folder, os.path.normpath(file.parent / row["file_name"]))
                rows[name] = {
                    key: value for key, value in row.items() if key != "file_name" and _is_keepable(key, value)
                }
    return rows


def _below(folder: Path, path: str) -> str:
    return os.path.relpath(path, folder).replace(os.sep, "/")


def _is_keepable(key: str, value: object) -> bool:
    try:
        check_metadata("", {key: value})
    except DataError:
        return False
    return True


def _other_files(others: Counter[str]) -> str:
    if not others:
        return ""
    kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in others.most_common(SHOWN))
    return f", but other files ({kinds}{', ...' if len(others) > SHOWN else ''})"
