"""A folder of pictures in an index, kept up to date: what is new or changed is encoded, what went is dropped.

An item's id is the folder's name and the picture's path below it, `photos/2024/a.jpg`. Its metadata are the row of
`metadata.jsonl` that names it, if any, and four keys of ours: `path`, `size`, `mtime` and `digest`.
A picture is the same as long as size and mtime are, or else its content's digest.

Each batch is committed as a whole, so that an interrupted run goes on where it was. A picture that cannot be used is
skipped, and dropped if it was there; what lies in a folder that cannot be read is left as it is.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from kenthash.codes import Codes
from kenthash.cores import cores
from kenthash.data.pictures import SUFFIXES, BadPicture, open_picture
from kenthash.data.readers.folder import metadata_files, read_rows
from kenthash.errors import DataError
from kenthash.progress import bar
from kenthash.search.engine import Item, Metadata
from kenthash.search.index import Index, check_id, check_metadata

BATCH = 64  # pictures encoded and committed at a time
MAX_FILE = 1 << 28  # bytes of a picture file
DIGEST = 32  # characters


@dataclass
class Report:
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: dict[str, str] = field(default_factory=dict)  # id, or a folder's name in the same form: why


@dataclass(frozen=True)
class _Picture:
    id: str
    path: Path
    metadata: Metadata  # without the digest


@dataclass
class Walk:
    """What a walk through a folder met."""

    folder: Path
    pictures: list[_Picture] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)  # pictures that cannot be items
    unread: dict[str, str] = field(default_factory=dict)  # files and folders of which nothing is known


@dataclass(frozen=True)
class _Fetched:
    digest: str
    image: Image.Image | None  # None where the content is the one that is indexed
    fault: str = ""


def sync_folder(index: Index, walk: Walk, encode: Callable[[Sequence[Image.Image]], Codes]) -> Report:
    """Bring the index in line with a folder; `encode` turns pictures into codes."""
    report, kept = Report(skipped={_printable(name): why for name, why in (walk.faults | walk.unread).items()}), set()
    count = len(walk.pictures)
    with ThreadPoolExecutor(min(8, cores())) as pool, bar(count, "index", "pictures") as progress:
        everything = iter(walk.pictures)
        while batch := list(islice(everything, BATCH)):
            kept |= _sync_batch(index, batch, encode, pool, report)
            progress.update(len(batch))
    unread = tuple(walk.unread)
    gone = [name for name in _ids_below(index, walk.folder) if name not in kept and not name.startswith(unread)]
    for start in range(0, len(gone), 10_000):
        report.removed += index.remove(gone[start : start + 10_000])
    return report


def _sync_batch(
    index: Index,
    batch: list[_Picture],
    encode: Callable[[Sequence[Image.Image]], Codes],
    pool: ThreadPoolExecutor,
    report: Report,
) -> set[str]:
    """Ids of the batch that belong in the index."""
    held = dict(zip((p.id for p in batch), index.get([p.id for p in batch]), strict=True))
    for picture in batch:
        _check_owner(index, picture, held[picture.id])
    todo = [p for p in batch if not _same(p, held[p.id])]
    fetched = list(pool.map(lambda p: _fetch(p, held[p.id]), todo))
    for picture, result in zip(todo, fetched, strict=True):
        if result.fault:
            report.skipped[picture.id] = result.fault
    good = [(p, f) for p, f in zip(todo, fetched, strict=True) if not f.fault]
    images = [f.image for _, f in good if f.image is not None]
    codes = iter(encode(images)) if images else iter(())
    rows, entries = [], []
    for picture, result in good:
        item = held[picture.id]
        rows.append(item.code if result.image is None and item is not None else next(codes))
        entries.append({**picture.metadata, "digest": result.digest})
    if good:
        index.upsert([p.id for p, _ in good], np.stack(rows), entries)
    report.added += sum(held[p.id] is None for p, _ in good)
    report.changed += sum(held[p.id] is not None for p, _ in good)
    report.unchanged += len(batch) - len(todo)
    return {p.id for p in batch} - report.skipped.keys()


def walk_folder(folder: Path) -> Walk:
    """The picture files in order, without hidden ones; links to folders are not followed."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder")
    rows, met = _rows(folder), Walk(folder)

    def name_of(path: Path) -> str:
        return f"{folder.name}/{path.relative_to(folder).as_posix()}"

    def unread(error: OSError) -> None:
        met.unread[name_of(Path(error.filename))] = error.strerror or type(error).__name__

    for here, folders, files in os.walk(folder, onerror=unread):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(here, name) for name in sorted(files) if not name.startswith(".")):
            if path.suffix.lower() in SUFFIXES:
                try:
                    _meet(path, name_of(path), rows.get(path, {}), met)
                except FileNotFoundError:  # gone meanwhile, or a link to nothing
                    continue
                except OSError as error:
                    unread(error)
    if not met.pictures and not met.faults:  # perhaps a disk that is not mounted: not a reason to drop all its pictures
        raise DataError(f"{folder}: no pictures here: nothing was added or dropped")
    return met


def _meet(path: Path, name: str, row: Metadata, met: Walk) -> None:
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        return
    metadata: Metadata = {**row, "path": str(path), "size": about.st_size, "mtime": about.st_mtime}
    try:
        check_id(name)
        check_metadata(name, {**metadata, "digest": "0" * DIGEST})
    except DataError as error:
        met.faults[name] = str(error)
    else:
        met.pictures.append(_Picture(name, path, metadata))


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]


def _rows(folder: Path) -> dict[Path, Metadata]:
    """Metadata by picture: every key of its row that an index can keep."""
    rows: dict[Path, Metadata] = {}
    for file in metadata_files(folder):
        for _, row in read_rows(file):
            if isinstance(row, dict) and isinstance(row.get("file_name"), str):
                rows[file.parent / row["file_name"]] = {
                    key: value for key, value in row.items() if key != "file_name" and _keepable(key, value)
                }
    return rows


def _keepable(key: str, value: object) -> bool:
    try:
        check_metadata("", {key: value})
    except DataError:
        return False
    return True


def _check_owner(index: Index, picture: _Picture, item: Item | None) -> None:
    if item is not None and item.metadata.get("path") != str(picture.path):
        raise DataError(
            f"{picture.path}: id {picture.id!r} is taken by {item.metadata.get('path', 'an item without a path')}: "
            "rename one of the folders, or remove the other's items first"
        )


def _same(picture: _Picture, item: Item | None) -> bool:
    return item is not None and {**picture.metadata, "digest": item.metadata.get("digest")} == item.metadata


def _fetch(picture: _Picture, item: Item | None) -> _Fetched:
    """Read a picture once: for its digest and, where its content is new, its pixels."""
    try:
        if picture.path.stat().st_size > MAX_FILE:
            return _Fetched("", None, f"a file of more than {MAX_FILE >> 20} MiB")
        content = picture.path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:DIGEST]
        if item is not None and item.metadata.get("digest") == digest:
            return _Fetched(digest, None)
        return _Fetched(digest, open_picture(content))
    except BadPicture as error:
        return _Fetched("", None, str(error).removeprefix("picture: "))
    except OSError as error:
        return _Fetched("", None, error.strerror or type(error).__name__)


def _ids_below(index: Index, folder: Path) -> Iterator[str]:
    """Ids in the index that come from this folder."""
    prefix = after = f"{folder.name}/"
    while names := index.list_ids(after, 10_000):
        for name, item in zip(names, index.get(names), strict=True):
            if not name.startswith(prefix):
                return
            if item is not None and str(item.metadata.get("path", "")).startswith(f"{folder}{os.sep}"):
                yield name
        after = names[-1]
