"""An index filled with codes that exist already: from files of codes, and from a feature pack, whose vectors have been
hashed.

**Files of codes** are what `kenthash hash` and `index export` write, and the same of other programs. They are read in
parts, and each part is one call of the engine: one transaction of a local index, one COPY to PostgreSQL, one bulk
import of Milvus where it can read the files (`staging`). Ids that exist are compared: what is different is replaced,
what is equal left alone. So the same command again changes nothing, and after an interruption goes on where it stopped.
A note in the index names the files while they fill an empty one: then a part whose first item is there is there as a
whole, and is not compared again. In the end the items are counted.

**A feature pack.** Ids are the pack's; `text` or `texts` and `labels` become metadata, where the pack has them. Items
are added or replaced, never removed: an item does not tell from which pack it came.
"""

import gc
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kenthash.codes import Codes
from kenthash.data.dataset import Dataset
from kenthash.data.manifest import CODES, NAME, read_manifest
from kenthash.errors import DataError, KenthashError
from kenthash.progress import bar
from kenthash.search.engine import Item, Metadata
from kenthash.search.export import first_bits, parquet_parts, parquet_rows, parquet_width, read_codes
from kenthash.search.folders.folder import IndexingReport
from kenthash.search.index import Index
from kenthash.search.metadata import JsonMetadata, check_id, check_metadata
from kenthash.search.models import PACKED, assign_codes, assign_version, check_codes_version, stages

ROWS = 100_000  # added at a time
IMPORTED = 500_000  # imported at a time: each import makes a segment of Milvus, which should not be small
PACK_ROWS = 1000  # items of a pack committed at a time
PAGE = 10_000  # looked up at a time
FILLING = "filling"  # a note: the files with which an index that was empty is being filled


Part = tuple[list[str], Codes, Sequence[Metadata]]


@dataclass
class FillReport:
    added: int = 0
    changed: int = 0
    unchanged: int = 0


@dataclass(frozen=True)
class CodeFiles:
    """Files of codes, in order."""

    path: Path
    files: list[Path]
    bits: int
    items: int
    about: dict[str, Any] = field(default_factory=dict)  # the first line of the manifest, where there is one
    first_bits: int | None = None  # of an index of two stages that was exported

    @property
    def stages(self) -> tuple[int, int | None]:
        """`bits` and `rerank_bits` of an index for these codes, as `index add` makes it for the model's pictures."""
        if self.first_bits is not None and self.first_bits < self.bits:
            return self.first_bits, self.bits
        return stages(self.bits, self.about.get("nested") or ())

    def digest(self) -> str:
        """Of the files as they are: another where one has changed."""
        states = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in self.files]
        return hashlib.sha256(json.dumps(states).encode()).hexdigest()[:32]


def find_codes(path: Path) -> CodeFiles:
    """The Parquet files of a folder, with or without a manifest, or one of them; or what else `read_codes` reads."""
    if (path / NAME).is_file():
        about, finished, complete = read_manifest(path)
        if not complete or about.get("kind") != CODES:
            reason = f"not codes of {CODES!r}" if complete else "not complete: run `kenthash hash` again, which goes on"
            raise DataError(f"{path}: {reason}")
        for record in finished.values():
            if (rows := parquet_rows(path / record.file)) != record.items:
                raise DataError(f"{path / record.file}: has {rows:,} codes, but {record.items:,} were written: damaged")
        files = [path / record.file for record in finished.values()]
        return CodeFiles(path, files, int(about["bits"]), sum(record.items for record in finished.values()), about)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path] if path.suffix == ".parquet" else []
    if not files:
        ids, codes, _ = read_codes(path)
        return CodeFiles(path, [], 8 * codes.shape[1], len(ids), first_bits=first_bits(path))
    bits, items = 8 * parquet_width(files[0]), sum(map(parquet_rows, files))
    return CodeFiles(path, files, bits, items, first_bits=first_bits(files[0]))


def fill_index(index: Index, codes: CodeFiles, staging: str | None = None) -> FillReport:
    """Add all codes to the index, and verify their number. With `staging`, a folder or an address where Milvus reads
    files, they are imported by it."""
    if codes.about:
        assign_codes(index, codes.path, codes.about)
    before, report, job = index.stats().items, FillReport(), codes.digest()
    resumed = index.notes().get(FILLING) == job
    if not resumed and before == 0:
        index.note(FILLING, job)
    # Where a part is one transaction, and the index was empty before the first, a part's first item tells of all.
    by_first = resumed and index.stats().engine != "milvus"
    add_items = index.add if staging is None else partial(index.import_items, staging=staging)
    with bar(codes.items, "index", "codes") as progress, _no_collection():
        for part in _parts(codes, ROWS if staging is None else IMPORTED):
            ids, _, metadata = part
            if not codes.about:
                check_codes_version(index, metadata)
            if by_first and index.get(ids[:1])[0] is not None:
                report.unchanged += len(ids)
            else:
                _add_part(index, add_items, part, report)
            progress.update(len(ids))
    _verify(index, codes, before, report)
    if FILLING in index.notes():
        index.note(FILLING, "")
    return report


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the garbage collector, which would look at each part's hundreds of thousands of objects several times
    while they are made; parts have no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _parts(codes: CodeFiles, rows: int) -> Iterator[Part]:
    if codes.files:
        for ids, part, texts in parquet_parts(codes.files, rows):
            if 8 * part.shape[1] != codes.bits:
                raise DataError(f"{codes.path}: codes of {8 * part.shape[1]} and of {codes.bits} bits")
            yield ids, part, JsonMetadata(ids, texts)
        return
    names, all_codes, metadata = read_codes(codes.path)
    for start in range(0, len(names), rows):
        stop = start + rows
        yield names[start:stop], all_codes[start:stop], metadata[start:stop]


def _add_part(index: Index, add_items: Callable[..., None], part: Part, report: FillReport) -> None:
    """Add a part; where some of its ids exist, replace what differs."""
    ids, codes, metadata = part
    try:
        add_items(ids, codes, metadata)
        report.added += len(ids)
        return
    except DataError:
        items = [item for start in range(0, len(ids), PAGE) for item in index.get(ids[start : start + PAGE])]
        if not any(items):
            raise
    different = [
        place
        for place, item in enumerate(items)
        if item is None or item.metadata != metadata[place] or not np.array_equal(item.code, codes[place])
    ]
    if different:
        index.upsert([ids[place] for place in different], codes[different], [metadata[place] for place in different])
    added = items.count(None)
    report.added += added
    report.changed += len(different) - added
    report.unchanged += len(ids) - len(different)


def _verify(index: Index, codes: CodeFiles, before: int, report: FillReport) -> None:
    items, expected = index.stats().items, before + report.added
    if items < codes.items:
        raise DataError(
            f"{codes.path}: {codes.items:,} codes, but the index has {items:,} items: some ids occur more than once"
        )
    if items != expected:
        raise KenthashError(
            f"the index has {items:,} items, and {expected:,} after this was added: if nothing else has changed it "
            "meanwhile, run this again"
        )


def add_pack(index: Index, dataset: Dataset, codes: Codes, version: str) -> IndexingReport:
    """Add the items of a pack with these codes. `version` is that of the picture pipeline by which the pack was made,
    "" where it does not tell."""
    assign_version(index, version or PACKED, "pack")
    report = IndexingReport()
    for start in range(0, len(dataset), PACK_ROWS):
        _add_pack_rows(index, dataset, range(start, min(start + PACK_ROWS, len(dataset))), codes, report)
    return report


def _add_pack_rows(index: Index, dataset: Dataset, rows: range, codes: Codes, report: IndexingReport) -> None:
    new: list[tuple[str, int, Metadata]] = []
    entries = [(dataset.ids[row], row, _pack_metadata(dataset, row)) for row in rows]
    usable = [(name, row, metadata) for name, row, metadata in entries if _is_usable(name, metadata, report)]
    for (name, row, metadata), item in zip(usable, index.get([name for name, _, _ in usable]), strict=True):
        _check_owner(name, item)
        if item is not None and item.metadata == metadata and np.array_equal(item.code, codes[row]):
            report.unchanged += 1
            continue
        new.append((name, row, metadata))
        report.added += item is None
        report.changed += item is not None
    if new:
        index.upsert([name for name, _, _ in new], codes[[row for _, row, _ in new]], [entry for _, _, entry in new])


def _is_usable(name: str, metadata: Metadata, report: IndexingReport) -> bool:
    try:
        check_id(name)
        check_metadata(name, metadata)
    except DataError as error:
        report.skipped[name] = str(error)
        return False
    return True


def _pack_metadata(dataset: Dataset, row: int) -> Metadata:
    texts = [text for text in dataset.texts[row] if text.strip()] if dataset.texts is not None else []
    metadata: Metadata = {"text": texts[0]} if len(texts) == 1 else {"texts": texts} if texts else {}
    if dataset.classes:
        metadata["labels"] = [dataset.classes[column] for column in dataset.labels[row].nonzero()[0].tolist()]
    return metadata


def _check_owner(name: str, item: Item | None) -> None:
    if item is not None and "path" in item.metadata:
        raise DataError(
            f"id {name!r} is taken by {item.metadata['path']}: use another index, or remove that item first"
        )
