"""A folder of pictures in an index, kept up to date: new and changed pictures are encoded, removed ones dropped.

An item's id is the folder's name and the picture's path below it, `photos/2024/a.jpg`. Its metadata are the row of
`metadata.jsonl` that names it, if any, and four more keys: `path`, `size`, `mtime` and `digest`.
A picture is unchanged if its size and mtime are, or else the digest of its content (see `data.changes`).

Each batch is committed as a whole, so that an interrupted run continues where it stopped. A picture that cannot be used
is skipped, and removed if it was indexed; items whose folder cannot be read are left as they are.

A digest begins with the version of the picture pipeline that made the item's code. An index that was filled by another
version (see `models.PICTURES`) is encoded again as a whole, with its other folders; until the last of its pictures is
done, its note says that it is unfinished.
"""

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tqdm import tqdm

from kenthash.codes import Codes
from kenthash.data.changes import DIGEST, FileState, file_state
from kenthash.data.pictures import MAX_FILE, PIPELINE, SUFFIXES
from kenthash.data.readers.folder import metadata_files, read_rows
from kenthash.errors import DataError, UsageError
from kenthash.progress import bar
from kenthash.search.engine import Item, Metadata
from kenthash.search.index import Index, check_id, check_metadata
from kenthash.search.models import DIGEST_PREFIX, PACKED, PICTURES, UNFINISHED, is_current, is_of_this_version

BATCH = 64  # pictures encoded and committed at a time
PAGE = 10_000  # ids listed or removed at a time

# Turns batches of files into their codes, in order, and says which files could not be used: `Hasher.encode_files`.
EncodeFiles = Callable[[Iterable[Sequence[Path]]], Iterator[tuple[Codes, Mapping[int, str]]]]


@dataclass
class IndexingReport:
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: dict[str, str] = field(default_factory=dict)  # the reason by id, or by a folder's name in the same form


@dataclass(frozen=True)
class _PictureFile:
    id: str
    path: Path
    metadata: Metadata  # without the digest


@dataclass
class FolderContent:
    """The files that `walk_folder` has seen."""

    folder: Path
    pictures: list[_PictureFile] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)  # pictures that cannot be items
    unread: dict[str, str] = field(default_factory=dict)  # files and folders that could not be read


@dataclass
class _Plan:
    """What is to be done with a batch of pictures."""

    size: int
    indexed: dict[str, Item | None]
    same: list[tuple[_PictureFile, Item]] = field(default_factory=list)  # content as indexed: the code stays
    new: list[tuple[_PictureFile, str]] = field(default_factory=list)  # to be encoded, with the digest of the content


def sync_folder(index: Index, content: FolderContent, encode: EncodeFiles) -> IndexingReport:
    """Make the index hold the pictures of a folder as they are now; `encode` turns pictures into codes."""
    skipped = content.faults | content.unread
    report = IndexingReport(skipped={_printable(name): reason for name, reason in skipped.items()})
    renew = not is_current(index) and bool(index.list_ids(limit=1))
    if renew and index.notes().get(PICTURES) == PACKED:
        raise UsageError("this index was filled from a feature pack that does not tell its version: use another index")
    index.note(PICTURES, UNFINISHED if renew else PIPELINE)  # before the first new code is added to old ones
    with bar(len(content.pictures), "index", "pictures") as progress:
        _encode_all(index, content.pictures, encode, report, progress)
    kept = {picture.id for picture in content.pictures} - report.skipped.keys()
    unread = tuple(content.unread)
    removed = [name for name in _ids_below(index, content.folder) if name not in kept and not name.startswith(unread)]
    for start in range(0, len(removed), PAGE):
        report.removed += index.remove(removed[start : start + PAGE])
    if renew and _renew_others(index, encode, report):
        index.note(PICTURES, PIPELINE)
    return report


def _encode_all(
    index: Index,
    pictures: Sequence[_PictureFile],
    encode: EncodeFiles,
    report: IndexingReport,
    progress: "tqdm[object]",
) -> None:
    """Encode and commit what is new or changed, batch by batch. While one batch is committed, the next are encoded."""
    plans: deque[_Plan] = deque()

    def batches() -> Iterator[list[Path]]:
        for start in range(0, len(pictures), BATCH):
            plans.append(_plan(index, pictures[start : start + BATCH], report))
            yield [picture.path for picture, _ in plans[-1].new]

    for codes, faults in encode(batches()):
        plan = plans.popleft()
        _commit(index, plan, codes, faults, report)
        progress.update(plan.size)


def _plan(index: Index, batch: Sequence[_PictureFile], report: IndexingReport) -> _Plan:
    plan = _Plan(len(batch), dict(zip((p.id for p in batch), index.get([p.id for p in batch]), strict=True)))
    for picture in batch:
        item = plan.indexed[picture.id]
        _check_owner(picture, item)
        if _is_unchanged(picture, item):
            report.unchanged += 1
            continue
        try:
            if picture.path.stat().st_size > MAX_FILE:
                report.skipped[picture.id] = f"a file of more than {MAX_FILE >> 20} MiB"
                continue
            digest = DIGEST_PREFIX + file_state(picture.path, _indexed_state(item)).digest
        except OSError as error:
            report.skipped[picture.id] = error.strerror or type(error).__name__
            continue
        if item is not None and item.metadata.get("digest") == digest:
            plan.same.append((picture, item))
        else:
            plan.new.append((picture, digest))
    return plan


def _commit(index: Index, plan: _Plan, codes: Codes, faults: Mapping[int, str], report: IndexingReport) -> None:
    good = [place for place in range(len(plan.new)) if place not in faults]
    for place, reason in faults.items():
        report.skipped[plan.new[place][0].id] = reason
    rows = [(picture, item.code, item.metadata["digest"]) for picture, item in plan.same]
    rows += [(plan.new[place][0], codes[place], plan.new[place][1]) for place in good]
    if not rows:
        return
    entries = [{**picture.metadata, "digest": digest} for picture, _, digest in rows]
    index.upsert([picture.id for picture, _, _ in rows], np.stack([code for _, code, _ in rows]), entries)
    added = sum(plan.indexed[picture.id] is None for picture, _, _ in rows)
    report.added += added
    report.changed += len(rows) - added


def _renew_others(index: Index, encode: EncodeFiles, report: IndexingReport) -> bool:
    """Encode the pictures of other folders again; whether all pictures now have a code of this version. An item whose
    file is missing keeps its old code: the disk may be back tomorrow."""
    old = _old_pictures(index)
    if old:
        with bar(len(old), "other folders", "pictures") as progress:
            _encode_all(index, old, encode, report, progress)
        old = _old_pictures(index)
    return not old


def _old_pictures(index: Index) -> list[_PictureFile]:
    """Items with a file and a code of another version. Codes that were added without a file are left alone."""
    old: list[_PictureFile] = []
    after = ""
    while names := index.list_ids(after, PAGE):
        for item in index.get(names):
            path = item.metadata.get("path") if item is not None else None
            if item is not None and isinstance(path, str) and not is_of_this_version(item.metadata):
                metadata = {key: value for key, value in item.metadata.items() if key != "digest"}
                old.append(_PictureFile(item.id, Path(path), metadata))
        after = names[-1]
    return old


def walk_folder(folder: Path) -> FolderContent:
    """The picture files in order, without hidden ones; links to folders are not followed."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder")
    rows, content = _metadata_rows(folder), FolderContent(folder)

    def name_of(path: Path) -> str:
        return f"{folder.name}/{path.relative_to(folder).as_posix()}"

    def unread(error: OSError) -> None:
        content.unread[name_of(Path(error.filename))] = error.strerror or type(error).__name__

    for here, folders, files in os.walk(folder, onerror=unread):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(here, name) for name in sorted(files) if not name.startswith(".")):
            if path.suffix.lower() in SUFFIXES:
                try:
                    _add_file(path, name_of(path), rows.get(path, {}), content)
                except FileNotFoundError:  # deleted meanwhile, or a broken link
                    continue
                except OSError as error:
                    unread(error)
    if not content.pictures and not content.faults:  # perhaps a disk that is not mounted: its items stay
        raise DataError(f"{folder}: no pictures here: nothing was added or dropped")
    return content


def _add_file(path: Path, name: str, row: Metadata, content: FolderContent) -> None:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return
    metadata: Metadata = {**row, "path": str(path), "size": status.st_size, "mtime": status.st_mtime}
    try:
        check_id(name)
        check_metadata(name, {**metadata, "digest": DIGEST_PREFIX + "0" * DIGEST})
    except DataError as error:
        content.faults[name] = str(error)
    else:
        content.pictures.append(_PictureFile(name, path, metadata))


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]


def _metadata_rows(folder: Path) -> dict[Path, Metadata]:
    """Metadata by picture: all keys of its row that an index can keep."""
    rows: dict[Path, Metadata] = {}
    for file in metadata_files(folder):
        for _, row in read_rows(file):
            if isinstance(row, dict) and isinstance(row.get("file_name"), str):
                rows[file.parent / row["file_name"]] = {
                    key: value for key, value in row.items() if key != "file_name" and _is_keepable(key, value)
                }
    return rows


def _is_keepable(key: str, value: object) -> bool:
    try:
        check_metadata("", {key: value})
    except DataError:
        return False
    return True


def _check_owner(picture: _PictureFile, item: Item | None) -> None:
    if item is not None and item.metadata.get("path") != str(picture.path):
        raise DataError(
            f"{picture.path}: id {picture.id!r} is taken by {item.metadata.get('path', 'an item without a path')}: "
            "rename one of the folders, or remove the other's items first"
        )


def _is_unchanged(picture: _PictureFile, item: Item | None) -> bool:
    if item is None or not is_of_this_version(item.metadata):
        return False
    return {**picture.metadata, "digest": item.metadata["digest"]} == item.metadata


def _indexed_state(item: Item | None) -> FileState | None:
    """The state of the file from which the item's code was made."""
    if item is None or not is_of_this_version(item.metadata):
        return None
    size, mtime, digest = (item.metadata.get(key) for key in ("size", "mtime", "digest"))
    if not isinstance(size, int) or not isinstance(mtime, int | float):
        return None
    return FileState(size, mtime, str(digest).removeprefix(DIGEST_PREFIX))


def _ids_below(index: Index, folder: Path) -> Iterator[str]:
    """Ids in the index that come from this folder."""
    prefix = after = f"{folder.name}/"
    while names := index.list_ids(after, PAGE):
        for name, item in zip(names, index.get(names), strict=True):
            if not name.startswith(prefix):
                return
            if item is not None and str(item.metadata.get("path", "")).startswith(f"{folder}{os.sep}"):
                yield name
        after = names[-1]
