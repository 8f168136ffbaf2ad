"""A folder of pictures in an index, kept up to date: new and changed pictures are encoded, removed ones dropped.

What an item is called, and where its file is, is said in `roots`. Its metadata are what the file says about the photo
(see `data.photo_facts`), the folder that it is in, the row of `metadata.jsonl` that names it, if any, and four keys for
kenthash itself: `size`, `mtime`, `digest` and `fingerprint`.

A picture is unchanged if its size and mtime are, or else the digest of its content (see `data.changes`). A new one with
the digest of one that is gone was moved: it keeps its code.

A part of each batch is committed as a whole, so that an interrupted run continues where it stopped; until then a note
of the index (see `roots`) says that it is unfinished. A picture that cannot be used is skipped, and removed if it was
indexed; items whose folder cannot be read are left as they are.

A digest begins with the version of the picture pipeline that made the item's code. An index that was filled by another
version (see `models.PICTURES`) is encoded again as a whole, with its other folders; until the last of its pictures is
done, its note says that it is unfinished.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from kenthash.codes import Codes
from kenthash.data.changes import DIGEST, FileState, file_state
from kenthash.data.photo_facts import Facts
from kenthash.data.pictures import MAX_FILE, PIPELINE
from kenthash.errors import DataError, UsageError
from kenthash.files import HALF
from kenthash.progress import bar, cores
from kenthash.search.engine import Item, Metadata
from kenthash.search.folders.roots import Root, Roots
from kenthash.search.folders.walk import FolderContent, is_excluded, metadata_rows
from kenthash.search.index import Index
from kenthash.search.metadata import CONTROL, check_id, check_metadata
from kenthash.search.models import (
    DIGEST_PREFIX,
    PACKED,
    PICTURES,
    UNFINISHED,
    assign_model,
    is_current,
    is_of_this_version,
)
from kenthash.search.texts import add_texts

BATCH = max(24, 12 * cores())  # pictures that are worked on at a time: what a kill can cost
COMMITTED = BATCH // 3  # at a time: a hasher encodes two such parts while a third one is committed
PAGE = 1000  # items looked up at a time

# Keys of what a file says about itself, which come with its code.
FACTS = (
    "width", "height", "orientation", "taken", "camera", "latitude", "longitude", "fingerprint",
)  # fmt: skip
LARGEST_FACTS: Metadata = dict.fromkeys(FACTS, "0" * 400)  # more than any has as JSON


class EncodedBatch(Protocol):
    """What `Hasher.encode_files` gives for a batch of files."""

    @property
    def codes(self) -> Codes: ...

    @property
    def facts(self) -> Sequence[Facts]: ...

    @property
    def bad(self) -> Mapping[int, str]: ...


class FolderHasher(Protocol):
    """What of a `Hasher` is needed to index a folder."""

    bits: int
    folder: Path  # of the model

    def encode_files(self, batches: Iterable[Sequence[Path]]) -> Iterator[EncodedBatch]: ...

    def encode_texts(self, texts: Sequence[str]) -> Codes: ...


EncodeFiles = Callable[[Iterable[Sequence[Path]]], Iterator[EncodedBatch]]


@dataclass
class IndexingReport:
    added: int = 0
    changed: int = 0
    moved: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: dict[str, str] = field(default_factory=dict)  # the reason by id, or by a folder's name in the same form
    texts: int | None = None  # the number of texts encoded; None where the index keeps no codes of texts


@dataclass(frozen=True)
class _Picture:
    id: str
    path: Path
    metadata: Metadata  # without the digest and what the file says about itself


@dataclass(frozen=True)
class _Task:
    """A picture that is new or has changed."""

    picture: _Picture
    item: Item | None  # that has its id


@dataclass(frozen=True)
class _Row:
    """An item as it is to be written."""

    task: _Task
    digest: str
    known: Item | None  # the same content as indexed, with code and facts; None where they are still to be made


def add_content(
    index: Index,
    content: FolderContent,
    hasher: FolderHasher,
    texts: bool = False,
    exclude: Sequence[str] | None = None,
) -> IndexingReport:
    """Make the index hold a folder as it is now (`sync_folder`), with codes of its texts if they are wanted or were
    before, and ready for fast search."""
    if hasher.bits != index.code_bits:
        raise UsageError(f"the model gives codes of {hasher.bits} bits, this index takes {index.code_bits}")
    assign_model(index, hasher.folder)
    report = sync_folder(index, content, hasher.encode_files, exclude)
    if texts or index.keeps_texts():
        report.texts = add_texts(index, hasher.encode_texts)
    if report.added or report.changed or report.moved or report.removed or report.texts:
        index.compact()
    return report


def sync_folder(
    index: Index, content: FolderContent, encode: EncodeFiles, exclude: Sequence[str] | None = None
) -> IndexingReport:
    """Make the index hold the pictures of a folder as they are now; `encode` turns pictures into codes.

    `exclude` has patterns of files to leave out (see `walk.is_excluded`), which are kept for the next time; by default
    those of the last time.
    """
    roots = Roots(index)
    root = roots.find(content.folder)
    if exclude is not None:
        root = replace(root, exclude=tuple(exclude))
    renew = not is_current(index) and bool(index.list_ids(limit=1))
    if renew and index.notes().get(PICTURES) == PACKED:
        raise UsageError("this index was filled from a feature pack that does not tell its version: use another index")
    roots.keep(root)
    index.note(PICTURES, UNFINISHED if renew else PIPELINE)  # before the first new code is added to old ones
    pictures, faults, unread = _pictures(root, content)
    report = IndexingReport(skipped={_printable(name): reason for name, reason in (faults | unread).items()})
    missing = _missing_items(index, roots, root, content.folder, {picture.id for picture in pictures}, tuple(unread))
    update = _Update(index, encode, report, {str(item.metadata["digest"]): item for item in missing})
    tasks = update.tasks(pictures)
    if tasks or missing or renew:
        roots.keep(root.begun(content.folder))  # until the end of it all, for searches to tell
    with bar(len(pictures), "index", "pictures", initial=report.unchanged) as progress:
        update.encode_all(tasks, progress)
    removed = [item.id for item in missing] + [task.picture.id for task in tasks if task.picture.id in report.skipped]
    for start in range(0, len(removed), PAGE):
        report.removed += index.remove(removed[start : start + PAGE])
    report.removed -= report.moved
    if renew and _renew_others(index, roots, update):
        index.note(PICTURES, PIPELINE)
    index.update_words()  # also of items that were added before indexes had words
    roots.keep(root.ended(content.folder))
    return report


def _pictures(root: Root, content: FolderContent) -> tuple[list[_Picture], dict[str, str], dict[str, str]]:
    """The pictures that can be items, those that cannot, and what could not be read; the latter two with the reason."""
    within = content.folder.relative_to(root.path).as_posix()
    before = "" if within == "." else f"{within}/"  # only a part of an indexed folder is looked at
    rows = metadata_rows(root.path) if before else content.rows
    pictures: list[_Picture] = []
    faults: dict[str, str] = {}
    for file in content.files:
        name = before + file.name
        if is_excluded(name, root.exclude):
            continue
        parent = str(PurePosixPath(name).parent)
        metadata: Metadata = {} if parent == "." else {"folder": parent}
        metadata |= {**rows.get(name, {}), "size": file.size, "mtime": file.mtime}
        if HALF.search(name):
            faults[root.prefix + name] = "its name is not UTF-8: rename it"
            continue
        if CONTROL.search(name):
            faults[root.prefix + name] = "its name has a control character: rename it"
            continue
        try:
            check_id(root.prefix + name)
            check_metadata(root.prefix + name, {**LARGEST_FACTS, **metadata, "digest": DIGEST_PREFIX + "0" * DIGEST})
        except DataError as error:
            faults[root.prefix + name] = str(error)
        else:
            pictures.append(_Picture(root.prefix + name, root.path / name, metadata))
    unread = {before + name: reason for name, reason in content.unread.items()}
    return pictures, faults, {root.prefix + n: r for n, r in unread.items() if not is_excluded(n, root.exclude)}


def _missing_items(
    index: Index, roots: Roots, root: Root, folder: Path, present_ids: set[str], unread: tuple[str, ...]
) -> list[Item]:
    """Items of this folder whose files are not there any more, or not wanted."""
    within = folder.relative_to(root.path).as_posix()
    prefix = root.prefix + ("" if within == "." else f"{within}/")
    missing: list[Item] = []
    after = prefix
    while names := index.list_ids(after, PAGE):
        after = names[-1]
        names = [name for name in names if name.startswith(prefix)]
        absent = [name for name in names if name not in present_ids and not name.startswith(unread)]
        for item in index.get(absent) if absent else ():
            if item is not None and "digest" in item.metadata and roots.of_id(item.id) == root:
                missing.append(item)
        if not names:
            break
    return missing


class _Update:
    """Encodes and commits what is new or has changed, batch by batch."""

    def __init__(
        self, index: Index, encode: EncodeFiles, report: IndexingReport, missing_items: dict[str, Item]
    ) -> None:
        """`missing_items` are those whose files are not there any more, by digest: a file that was moved keeps its
        code."""
        self.index, self._encode, self.report, self._missing_items = index, encode, report, missing_items
        self._moved: set[str] = set()  # digests

    def tasks(self, pictures: Sequence[_Picture]) -> list[_Task]:
        """What is to be done; pictures that have not changed are counted."""
        tasks: list[_Task] = []
        for start in range(0, len(pictures), PAGE):
            page = pictures[start : start + PAGE]
            for picture, item in zip(page, self.index.get([picture.id for picture in page]), strict=True):
                if item is not None and _is_unchanged(picture, item):
                    self.report.unchanged += 1
                else:
                    tasks.append(_Task(picture, item))
        return tasks

    def encode_all(self, tasks: Sequence[_Task], progress: "tqdm[object]") -> None:
        """While one batch is committed, the next are encoded."""
        plans: deque[tuple[int, list[_Row]]] = deque()

        def batches() -> Iterator[list[Path]]:
            for start in range(0, len(tasks), COMMITTED):
                batch = tasks[start : start + COMMITTED]
                rows = [row for row in map(self._row, batch) if row is not None]
                plans.append((len(batch), rows))
                yield [row.task.picture.path for row in rows if row.known is None]

        for encoded in self._encode(batches()):
            size, rows = plans.popleft()
            self._commit(rows, encoded)
            progress.update(size)

    def _row(self, task: _Task) -> _Row | None:
        picture, item = task.picture, task.item
        try:
            if picture.path.stat().st_size > MAX_FILE:
                self.report.skipped[picture.id] = f"a file of more than {MAX_FILE >> 20} MiB"
                return None
            digest = DIGEST_PREFIX + file_state(picture.path, _indexed_state(item)).digest
        except OSError as error:
            self.report.skipped[picture.id] = error.strerror or type(error).__name__
            return None
        known = item if item is not None and item.metadata.get("digest") == digest else self._missing_items.get(digest)
        return _Row(task, digest, known if known is not None and _is_complete(known) else None)

    def _commit(self, rows: Sequence[_Row], encoded: EncodedBatch) -> None:
        ids: list[str] = []
        codes: list[NDArray[np.uint8]] = []
        entries: list[Metadata] = []
        places = iter(range(len(encoded.codes)))
        for row in rows:
            picture = row.task.picture
            if row.known is not None:
                code, facts = row.known.code, _facts_of(row.known)
            elif (place := next(places)) in encoded.bad:
                self.report.skipped[picture.id] = encoded.bad[place]
                continue
            else:
                code, facts = encoded.codes[place], dict(encoded.facts[place])
            ids.append(picture.id)
            codes.append(code)
            entries.append({**facts, **picture.metadata, "digest": row.digest})
            self._count(row, entries[-1])
        if ids:
            self.index.upsert(ids, np.stack(codes), entries)
            self.index.update_words()

    def _count(self, row: _Row, entry: Metadata) -> None:
        if row.task.item is not None:
            if {**row.task.item.metadata, "mtime": entry["mtime"]} == entry:  # saved again, or copied, as it was
                self.report.unchanged += 1
            else:
                self.report.changed += 1
        elif row.known is not None and row.digest not in self._moved:
            self._moved.add(row.digest)
            self.report.moved += 1
        else:
            self.report.added += 1


def _renew_others(index: Index, roots: Roots, update: _Update) -> bool:
    """Encode the pictures of other folders again; whether all pictures now have a code of this version. An item whose
    file is missing keeps its old code: the disk may be back tomorrow."""
    old = _old_pictures(index, roots)
    if old:
        with bar(len(old), "other folders", "pictures") as progress:
            update.encode_all(update.tasks(old), progress)
        old = _old_pictures(index, roots)
    return not old


def _old_pictures(index: Index, roots: Roots) -> list[_Picture]:
    """Items with a file and a code of another version. Codes that were added without a file are left alone."""
    old: list[_Picture] = []
    after = ""
    while names := index.list_ids(after, PAGE):
        for item in index.get(names):
            path = roots.path_of(item.id, item.metadata) if item is not None else None
            if item is not None and path is not None and not is_of_this_version(item.metadata):
                metadata = {key: value for key, value in item.metadata.items() if key not in (*FACTS, "digest")}
                old.append(_Picture(item.id, path, metadata))
        after = names[-1]
    return old


def _facts_of(item: Item) -> Metadata:
    return {key: item.metadata[key] for key in FACTS if key in item.metadata}


def _is_complete(item: Item) -> bool:
    """Whether an item has all that this version makes of a picture; before, there were no facts."""
    return is_of_this_version(item.metadata) and "fingerprint" in item.metadata


def _is_unchanged(picture: _Picture, item: Item) -> bool:
    if not _is_complete(item):
        return False
    return {**_facts_of(item), **picture.metadata, "digest": item.metadata["digest"]} == item.metadata


def _indexed_state(item: Item | None) -> FileState | None:
    """The state of the file from which the item's code was made."""
    if item is None or not is_of_this_version(item.metadata):
        return None
    size, mtime, digest = (item.metadata.get(key) for key in ("size", "mtime", "digest"))
    if not isinstance(size, int) or not isinstance(mtime, int | float):
        return None
    return FileState(size, mtime, str(digest).removeprefix(DIGEST_PREFIX))


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]
