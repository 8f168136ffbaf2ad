"""What looks after a local index as a whole: `kenthash index verify` and `kenthash index backup`.

**Verify** compares everything that an index holds with everything else that it holds:

- the SQLite file, by SQLite's own check of its pages and indexes;
- every item: its id, the length of its code, its metadata; and the order of ids;
- every code of a text: its item, its number, its length;
- the index of words, against a new one of the same items; and the notes;
- the code files: their checksums, their codes and rows against the store, and their tables, by making them again.

A search checks most of this as it goes, but only of what it reads. All but the first is read in one transaction, so
that others may write meanwhile. With `repair`, what can be made again from the items is: the order of ids, the words
and code files. Wrong codes of texts are dropped; `kenthash index add --texts` makes them again. Items come from a
backup only.

**Backup** makes a copy in one file while others search and write.

SQLite copies all pages as of one moment, the beginning of the copy; writers go on in the write-ahead log. The copy is
checked, flushed to disk and renamed when it is complete. It is an index like any other: to restore it, copy it to where
the index was, of which nothing may be left (SQLite would apply an old log to the copy). The code files, which are
caches, are not copied; the first search makes them again.
"""

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.files import sync_folder
from kenthash.progress import cores
from kenthash.search.engine import coded_texts
from kenthash.search.local import codefile, fulltext, scan
from kenthash.search.local.checksums import DamagedCodeFile
from kenthash.search.local.codefile import CodeFile, read_code_file, sorted_codes, write_code_file
from kenthash.search.local.scan import Words
from kenthash.search.local.schema import damaged, delete_file, errors, is_of_environment
from kenthash.search.local.sqlite import sqlite3
from kenthash.search.local.store import Store, TextStore
from kenthash.search.metadata import check_id, check_metadata
from kenthash.search.servers.addresses import without_password

CHUNK = 10_000  # rows read at a time
MAX_FAULTS = 20  # that are told of one kind
CODE_FILES = ("codes", "codes_digest", "texts codes", "texts codes_digest")  # what names code files in `about`
UNREAD = "unable to get the page"  # of `quick_check`, where the disk fails


@dataclass
class Verification:
    """What `verify_index` has found. `faults` by what they are in, which is also what is repaired as a whole."""

    items: int = 0
    texts: int = 0
    code_files: int = 0
    faults: dict[str, list[str]] = field(default_factory=dict)
    repaired: dict[str, list[str]] = field(default_factory=dict)  # faults that were there before

    @property
    def healthy(self) -> bool:
        return not self.faults

    def note(self, part: str, faults: Iterator[str]) -> None:
        """List the faults of a part. What cannot be read at all is a fault, too, and ends the list."""
        listed: list[str] = []
        try:
            listed += islice(faults, MAX_FAULTS + 1)
        except (DataError, sqlite3.DatabaseError) as error:
            if isinstance(error, sqlite3.DatabaseError) and is_of_environment(error):
                raise
            listed.append(str(error))
        if listed:
            lines = [" ".join(fault.split())[:200] for fault in listed[:MAX_FAULTS]]
            self.faults[part] = [*lines, "and more"] if len(listed) > MAX_FAULTS else lines


def verify_index(target: str | Path, repair: bool = False) -> Verification:
    """Check a local index as a whole. With `repair`, make again what can be made again, and check once more.

    Example:

        >>> from tempfile import TemporaryDirectory
        >>> from kenthash import Index
        >>> with TemporaryDirectory() as folder:
        ...     with Index.create(f"{folder}/pictures.kh", bits=8) as index:
        ...         index.add(["a.jpg", "b.jpg"], np.uint8([[1], [2]]))
        ...         index.compact()
        ...     verify_index(f"{folder}/pictures.kh")
        Verification(items=2, texts=0, code_files=1, faults={}, repaired={})
    """
    store = Store.open(local_path(target))
    try:
        with errors(store.path):
            report = _verify(store)
            if repair and report.faults:
                _repair(store, report)
                repaired, report = report.faults, _verify(store)
                report.repaired = {part: faults for part, faults in repaired.items() if part not in report.faults}
            return report
    finally:
        store.close()


def local_path(target: str | Path) -> Path:
    if "://" in str(target):
        raise UsageError(f"{without_password(str(target))}: only an index in a file: a server has tools of its own")
    return Path(target)


def _verify(store: Store) -> Verification:
    report, texts = Verification(), TextStore(store)
    report.note("SQLite file", _sqlite_faults(store.connection))
    if report.faults:
        return report  # its tables cannot be read, or what they say cannot be relied on
    with store.reading():
        report.note("items", _item_faults(store, report))
        if not report.faults:  # the rest is compared with the items
            report.note("order of ids", _order_faults(store))
        if not report.faults and texts.exists():
            report.note("texts", _text_faults(texts, report))
        if not report.faults and fulltext.exists(store):
            report.note("words", fulltext.faults(store))
        report.note("notes", _note_faults(store))
        for part, codes in (("code file", store), ("code file of texts", texts)):
            if report.faults.keys() <= {"code file", "words", "notes"} and codes.about("codes"):
                report.code_files += 1
                report.note(part, _code_file_faults(codes))
    return report


def _sqlite_faults(connection: sqlite3.Connection) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_FAULTS + 1})"):
        if line != "ok":
            yield line


def _item_faults(store: Store, report: Verification) -> Iterator[str]:
    last = store.mark().row
    reader = store.connection.execute("SELECT row, id, code, metadata FROM items")
    while part := reader.fetchmany(CHUNK):
        report.items += len(part)
        for row, name, code, entry in part:
            try:
                if not isinstance(name, str):
                    raise DataError("its id is no text")
                check_id(name)
                store.checked_code(row, name, entry, code)
                check_metadata(name, store.parse_metadata([entry])[0])
            except DataError as error:
                yield f"row {row}: {error}"
            if row > last:
                yield f"row {row}: beyond the last row, {last}"
    for (row,) in store.connection.execute("SELECT row FROM removed WHERE typeof(row) != 'integer'"):
        yield f"a removed row {row!r}: no number"
    for (row,) in store.connection.execute("SELECT row FROM removed WHERE row IN (SELECT row FROM items)"):
        yield f"row {row}: listed as removed, but there"


def _order_faults(store: Store) -> Iterator[str]:
    """Ids by the order of rows that searches and lists rely on: each row once, each id greater than the one before."""
    rows = store.rows_by_id()
    present = np.fromiter((row for (row,) in store.connection.execute("SELECT row FROM items ORDER BY row")), np.int64)
    if not np.array_equal(np.sort(rows), present):
        yield f"{len(rows)} rows in the order of ids, {len(present)} items, not the same ones"
        return
    before = ""
    for start in range(0, len(rows), CHUNK):
        ids = store.items_of(rows[start : start + CHUNK].tolist())
        for row in rows[start : start + CHUNK].tolist():
            name = ids[row][0]
            if name <= before:
                yield f"row {row}: {name[:60]!r} stands after {before[:60]!r}"
            before = name


def _text_faults(texts: TextStore, report: Verification) -> Iterator[str]:
    reader = texts.connection.execute(
        "SELECT texts.item, items.id, items.metadata, texts.number, texts.code, texts.row FROM texts "
        "LEFT JOIN items ON items.row = texts.item ORDER BY texts.item, texts.number"
    )
    for item, group in groupby(reader, key=lambda text: text[0]):
        codes = list(group)
        report.texts += len(codes)
        (_, name, entry, *_) = codes[0]
        if name is None:
            yield f"item {item}: does not exist, but has {len(codes)} texts"
            continue
        numbers, expected = [number for *_, number, _, _ in codes], len(coded_texts(texts.parse_metadata([entry])[0]))
        if numbers != list(range(expected)):
            yield f"{name[:60]!r}: codes of the texts {numbers}, but it has {expected}"
        try:
            for *_, number, code, row in codes:
                texts.checked_text(row, item, number, code)
        except DataError as error:
            yield f"{name[:60]!r}: {error}"


def _note_faults(store: Store) -> Iterator[str]:
    store.checked_notes()
    yield from ()


def _code_file_faults(store: Store) -> Iterator[str]:
    try:
        base = codefile.current_code_file(store)
        if base is None or base.mapped is None:
            return
        base.mapped.check_everything()
    except (DamagedCodeFile, DataError) as error:
        yield str(error)
        return
    name, mark = base.mapped.blocks.path.name, store.mark()
    if base.mark.row > mark.row or not store.log_start() <= base.mark.removal <= mark.removal:
        yield f"{name}: made from another state than any that the store had"
        return
    present = ~np.isin(base.rows, store.removed_since(base.mark.removal))
    rows, codes, rest_codes = sorted_codes(store)
    known = rows <= base.mark.row
    if not np.array_equal(base.rows[present], rows[known]):
        yield f"{name}: other items than in the store, or in another order"
    elif (wrong := np.flatnonzero(_differ(base, present, codes[known], rest_codes[known]))).size:
        yield f"{name}: {len(wrong)} codes that are not those of the store, the first in row {rows[known][wrong[0]]}"
    elif base.tables is not None and scan.has_numba() and not _tables_are_right(store, base):
        yield f"{name}: its tables are not those of its codes"


def _differ(base: CodeFile, present: NDArray[np.bool_], codes: Words, rest_codes: Words) -> NDArray[np.bool_]:
    return np.asarray((base.codes[present] != codes).any(axis=1) | (base.rest_codes[present] != rest_codes).any(axis=1))


def _tables_are_right(store: Store, base: CodeFile) -> bool:
    """Whether a file made of the same codes is the same: its header and checksums, and so all its bytes."""
    assert base.tables is not None and base.mapped is not None
    with tempfile.TemporaryDirectory(prefix="kenthash-verify-") as folder:
        path, cuts, fast = Path(folder) / "codes", base.tables.cuts, bool(base.tables.copies.size)
        rows = base.rows.astype(np.int64)
        bits = (store.bits, store.code_bits - store.bits)
        digest = write_code_file(path, base.mark, bits, base.codes, base.rest_codes, rows, cuts, fast, cores())
        return digest == base.mapped.digest and read_code_file(path, digest).bytes == base.bytes


def _repair(store: Store, report: Verification) -> None:
    texts = TextStore(store)
    if "SQLite file" in report.faults or "order of ids" in report.faults:
        try:
            with store.writing() as connection:
                connection.execute("REINDEX")
                store.ids.rebuild()
            if "SQLite file" in report.faults and fulltext.exists(store):
                fulltext.update(store, rebuild=True)
        except (DataError, sqlite3.DatabaseError):  # what is damaged is no index
            return
        report.faults |= _verify(store).faults  # now that the rest can be read
    if "words" in report.faults:
        fulltext.update(store, rebuild=True)
    if "texts" in report.faults:
        with store.writing() as connection:  # all of them: which codes are of which texts is no longer known
            connection.execute("INSERT INTO removed_texts(row) SELECT row FROM texts")
            connection.execute("DELETE FROM texts")
    if report.faults.keys() & {"SQLite file", "order of ids", "texts", "code file", "code file of texts"}:
        try:
            codefile.compact(store, cores())
            if texts.exists():
                codefile.compact(texts, cores())
        except KenthashError:  # the items that it is to be made of are damaged
            return


def backup_index(target: str | Path, out: str | Path) -> int:
    """Copy a local index to `out`, which must not exist yet. Returns the number of items in the copy.

    Example:

        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> from kenthash import Index
        >>> with TemporaryDirectory() as folder, Index.create(f"{folder}/pictures.kh", bits=8) as index:
        ...     index.add(["a.jpg", "b.jpg"], np.uint8([[1], [2]]))
        ...     copied = backup_index(f"{folder}/pictures.kh", f"{folder}/copy.kh")
        ...     copied, Index.open(f"{folder}/copy.kh").list_ids()
        (2, ['a.jpg', 'b.jpg'])
    """
    out = Path(out)
    for file in (out, out.with_name(out.name + "-wal"), out.with_name(out.name + "-journal")):
        if file.exists():
            raise UsageError(f"{file}: exists already: remove it, or choose another name")
    partial = out.with_name(f"{out.name}.{uuid.uuid4().hex}.partial")
    store = Store.open(local_path(target))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with errors(store.path):
            items = _copy(store, partial)
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        partial.rename(out)
        try:
            sync_folder(out.parent)
        except OSError:  # a copy that a power cut may take away again is none
            delete_file(out)
            raise
    except OSError as error:
        raise KenthashError(f"{out}: cannot be written: {error.strerror or error}") from error
    finally:
        store.close()
        delete_file(partial)
    return items


def _copy(store: Store, partial: Path) -> int:
    with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
        try:
            store.connection.backup(copy)
        except sqlite3.OperationalError as error:  # of either file, and without a code
            raise KenthashError(f"{store.path}: cannot be copied: {error}") from error
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, with no log beside it
        for (line,) in copy.execute("PRAGMA quick_check(1)"):
            if UNREAD in line:
                raise KenthashError(f"{partial}: cannot be read: {' '.join(line.split())}")
            if line != "ok":
                raise damaged(store.path, line)
        # An index that is replaced by its copy while it is open is noticed by this.
        copy.execute("UPDATE about SET value = ? WHERE key = 'identity'", (uuid.uuid4().hex,))
        copy.executemany("DELETE FROM about WHERE key = ?", [(key,) for key in CODE_FILES])
        return int(copy.execute("SELECT count(*) FROM items").fetchone()[0])
