"""The truth of a local index: ids, codes and metadata in one SQLite file.

Every change is one transaction in write-ahead mode, flushed to disk before the call returns: once `add` has returned,
its items survive a kill or a power cut; if it has not, either all or none of them are there. SQLite's lock admits one
writer at a time, others wait; a reader keeps the state that it began with.

Rows are numbered in the order in which items are added, and no number is used twice; a replaced item gets a new row,
and the rows of removed items are listed in `removed`. So a cache that knows up to which row and removal it has read
(`Mark`) reads only what came later. Items are found by row; which id has which row is in `idorder`.

The codes of texts are in tables of their own (`TextStore`), which are created when the first texts get codes, so that a
file without texts stays as it was.

SQLite does not notice a changed letter or bit, so rows have `checksums` of ours, which are compared whenever a
row is read out. What SQLite itself looks through, for a filter or to count labels, is compared by `verify` only.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import MAX_BITS, MIN_BITS, Codes
from kenthash.errors import DataError, DuplicateId, KenthashError
from kenthash.search.engine import Item, Metadata
from kenthash.search.filters import (
    OPERATORS,
    Among,
    And,
    Compare,
    Filter,
    Has,
    IsNull,
    Literal,
    NearPlace,
    Not,
    Or,
    kind,
)
from kenthash.search.local.checksums import item_seal, notes_seal, text_seal
from kenthash.search.local.idorder import DIFFER, IdOrder
from kenthash.search.local.schema import (
    NOTES_SEAL,
    READ_CACHE_KIB,
    READ_ONLY,
    WRITE_CACHE_KIB,
    FileIdentity,
    create_file,
    damaged,
    errors,
    file_identity,
    open_file,
)
from kenthash.search.local.sqlite import sqlite3
from kenthash.search.metadata import JsonMetadata
from kenthash.search.photo_counts import CELLS_PER_DEGREE, MONTH, PhotoGroup

FORMS = ("fast", "compact", "scan")
NOT_AS_WRITTEN = "does not match its checksum"
REPLACED = "another index has taken the place of the one opened: open it again"
INSERT_ROWS = 128  # rows inserted by one statement
READ_ROWS = 2048  # rows read as one value, which SQLite limits to 10^9 bytes; metadata have 2^16 at most
UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError)  # raised by values that kenthash did not write
MARK = "SELECT (SELECT seq FROM sqlite_sequence WHERE name = ?), (SELECT seq FROM sqlite_sequence WHERE name = ?)"
ITEMS_OF_ROWS = (  # `code` with its checksum
    "SELECT json_group_array(json_array(row, id, metadata, hex(code))) FROM items "
    "WHERE row IN (SELECT value FROM json_each(?))"
)
LISTED_ROW = "row IN (SELECT value FROM json_each(?))"

LABEL_COUNTS = (
    "SELECT label.value, count(DISTINCT row) AS items FROM items, json_each(metadata, '$.labels') AS label "
    "WHERE json_type(metadata, '$.labels') = 'array' GROUP BY label.value ORDER BY items DESC, label.value LIMIT ?"
)

_TEXT = "CASE json_type(metadata, '$.{key}') WHEN 'text' THEN json_extract(metadata, '$.{key}') END"
_ON_MAP = " AND ".join(
    f"json_type(metadata, '$.{key}') IN ('integer', 'real') AND "
    f"json_extract(metadata, '$.{key}') BETWEEN -{most} AND {most}"
    for key, most in (("latitude", 90), ("longitude", 180))
)
_CELL = (
    f"CASE WHEN {_ON_MAP} THEN CAST((json_extract(metadata, '$.%s') + %d) * {CELLS_PER_DEGREE} + 0.5 AS INTEGER) END"
)
PHOTO_GROUPS = (
    f"SELECT substr({_TEXT.format(key='taken')}, 1, {MONTH}) AS month, {_TEXT.format(key='camera')} AS camera, "
    f"{_CELL % ('latitude', 90)} AS i, {_CELL % ('longitude', 180)} AS j, count(*) FROM items "
    "WHERE month IS NOT NULL OR camera IS NOT NULL OR i IS NOT NULL GROUP BY month, camera, i, j"
)

JSON_TYPES = {"text": "'text'", "number": "'integer', 'real'", "boolean": "'true', 'false'"}  # by `filters.kind`

SEPARATOR = "\0"  # between the id of an item and the number of a text
TEXT_TABLES = (
    """
    CREATE TABLE texts(row INTEGER PRIMARY KEY AUTOINCREMENT, item INTEGER NOT NULL, number INTEGER NOT NULL,
                       code BLOB NOT NULL, UNIQUE(item, number))
    """,
    "CREATE TABLE removed_texts(seq INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER NOT NULL)",
    """
    CREATE TRIGGER texts_of_removed AFTER DELETE ON items BEGIN
        INSERT INTO removed_texts(row) SELECT row FROM texts WHERE item = OLD.row;
        DELETE FROM texts WHERE item = OLD.row;
    END
    """,
)
TEXTS_AND_ITEMS = "texts JOIN items ON items.row = texts.item"
TEXT_ID = "items.id || char(0) || texts.number"
TEXTS_OF_ROWS = (
    "SELECT json_group_array(json_array(texts.row, items.row, items.id, texts.number, metadata, hex(texts.code), "
    "hex(items.code))) "
    f"FROM {TEXTS_AND_ITEMS} WHERE texts.row IN (SELECT value FROM json_each(?))"
)


@dataclass(frozen=True, order=True)
class Mark:
    """A state of the store: the last row added and the last removal, both of which only grow."""

    row: int
    removal: int


class Store:
    """One connection, for one call at a time (see `local.Connections`)."""

    code_suffix = ".codes"  # the end of the names of code files
    counters = ("items", "removed")  # the tables whose sequence numbers are the mark
    select_removed = "SELECT row, EXISTS(SELECT 1 FROM items WHERE row = removed.row) FROM removed WHERE seq > ?"
    select_added = "SELECT row, id, metadata, code FROM items WHERE row > ? ORDER BY row"
    select_by_row = "SELECT row, id, metadata, code FROM items ORDER BY row"
    select_where = "SELECT row FROM items WHERE"

    def __init__(self, path: Path, connection: sqlite3.Connection, unchanged_since: FileIdentity | None = None) -> None:
        self.path, self.connection, self._state = path, connection, unchanged_since
        self._file = file_identity(path)[:2]  # the device and the number of the file there
        self.ids = IdOrder(connection)
        self.bits, self.identity, self.form = self._number("bits"), str(self.about("identity")), str(self.about("form"))
        self.code_bits = (
            self._number("rerank_bits") or self.bits
        )  # of the codes of items, which `bits` are the first of
        is_possible = MIN_BITS <= self.bits <= self.code_bits <= MAX_BITS and (self.bits | self.code_bits) % 8 == 0
        if not is_possible or self.form not in FORMS:
            raise damaged(path, f"codes of {self.bits} and {self.code_bits} bits in the form {self.form[:20]!r}")

    @classmethod
    def create(cls, path: Path, bits: int, code_bits: int, form: str) -> "Store":
        about: dict[str, str | int] = {"bits": bits, "form": form}
        if code_bits > bits:
            about["rerank_bits"] = code_bits
        create_file(path, about)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "Store":
        connection, unchanged_since = open_file(path)
        try:
            with errors(path):
                return cls(path, connection, unchanged_since)
        except BaseException:
            connection.close()
            raise

    @property
    def words(self) -> tuple[int, int]:
        """64-bit words of the first bits of a code, and of the others."""
        return -(-self.bits // 64), -(-(self.code_bits - self.bits) // 64)

    def outdated(self) -> bool:
        """Whether the file changed though it was opened as immutable (see `open_file`)."""
        return self._state is not None and (
            file_identity(self.path) != self._state or self.path.with_name(self.path.name + "-wal").exists()
        )

    def about(self, key: str) -> str | int | None:
        row = self.connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def _number(self, key: str) -> int:
        number = self.about(key) or 0
        if not isinstance(number, int):
            raise damaged(self.path, f"{key} is {str(number)[:20]!r}")
        return number

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction with the writer's lock; committed at the end, undone on any error."""
        if self._state is not None:
            raise KenthashError(f"{self.path}: {READ_ONLY}")
        self.connection.execute("BEGIN IMMEDIATE")
        self.ids.forget()
        try:
            self._check_same_file()
            self.connection.execute(f"PRAGMA cache_size = -{WRITE_CACHE_KIB}")
            yield self.connection
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        finally:
            self.connection.execute(f"PRAGMA cache_size = -{READ_CACHE_KIB}")

    def _check_same_file(self) -> None:
        """What is written to a file that was removed or replaced would be lost."""
        there = file_identity(self.path)[:2]
        if there != self._file:
            raise DataError(f"{self.path}: {REPLACED if there else 'the file of this index is gone: open another one'}")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction in which all reads see one state of the store, whatever writers do."""
        self.connection.execute("BEGIN")
        self.ids.forget()
        try:
            yield self.connection
        finally:
            if self.connection.in_transaction:  # SQLite ends it by itself where the disk fails
                self.connection.execute("COMMIT")

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        with self.writing():
            existing = min(self.ids.locate(ids), default=None)
            if existing is not None:
                raise DuplicateId(f"{self.path}: id {existing!r} is in the index already: use upsert to replace")
            self._insert(ids, codes, metadata)

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        with self.writing():
            self._remove(ids)
            self._insert(ids, codes, metadata)

    def remove(self, ids: Sequence[str]) -> int:
        with self.writing():
            return self._remove(ids)

    def _insert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        """Many rows per statement, in the order of ids: twice as fast as one by one."""
        blobs = codes.reshape(-1).view(f"V{codes.shape[1]}").tolist()
        order = sorted(range(len(ids)), key=ids.__getitem__)
        texts = metadata.texts if isinstance(metadata, JsonMetadata) else [_json(entry) for entry in metadata]
        first = self.mark().row + 1
        blobs = [blobs[i] + item_seal(row, ids[i], texts[i], blobs[i]) for row, i in enumerate(order, first)]
        even = len(order) // INSERT_ROWS * INSERT_ROWS
        for size, start, part in ((INSERT_ROWS, first, order[:even]), (1, first + even, order[even:])):
            values = ((row, ids[i], blobs[row - first], texts[i]) for row, i in enumerate(part, start))
            statement = "INSERT INTO items(row, id, code, metadata) VALUES " + ", ".join(["(?, ?, ?, ?)"] * size)
            self.connection.executemany(statement, _batched(chain.from_iterable(values), 4 * size))
        self.ids.put([ids[i] for i in order], range(first, first + len(ids)))

    def _remove(self, ids: Sequence[str]) -> int:
        rows = _json_list(self.ids.remove(ids))
        self.connection.execute("INSERT INTO removed(row) SELECT value FROM json_each(?)", (rows,))
        return self.connection.execute(f"DELETE FROM items WHERE {LISTED_ROW}", (rows,)).rowcount

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        with self.reading() as connection:
            located = self.ids.locate(ids)
            select = f"SELECT row, id, metadata, code FROM items WHERE {LISTED_ROW}"
            rows = connection.execute(select, (_json_list(located.values()),)).fetchall()
            for block in self.ids.blocks_of(set(ids) - located.keys()):  # an id that was changed misleads the others
                self.checked_ids(connection, f"WHERE {LISTED_ROW}", (_json_list(block),))
        codes = np.frombuffer(self.checked_codes(rows), np.uint8).reshape(len(rows), self.code_bits // 8)
        entries = self.parse_metadata([entry for _, _, entry, _ in rows])
        items = {row: (code, entry) for (row, *_), code, entry in zip(rows, codes, entries, strict=True)}
        return [Item(name, *items[located[name]]) if located.get(name) in items else None for name in ids]

    def parse_metadata(self, texts: Sequence[str]) -> list[Metadata]:
        """The metadata of several items from their JSON: parsed one by one they would take several times as long."""
        try:
            entries: list[Metadata] = json.loads("[" + ",".join(texts) + "]")
        except UNREADABLE as error:
            raise damaged(self.path, f"metadata: {error}") from error
        if len(entries) != len(texts) or not _all(dict, entries):
            raise damaged(self.path, "metadata that are no JSON object")
        return entries

    def checked_codes(self, rows: Sequence[tuple[int, str, str, bytes]]) -> bytes:
        """The codes of items as one string of bytes, without their checksums, which are compared. `rows` have row, id,
        metadata as JSON and code with checksum."""
        return b"".join(self.checked_code(*row) for row in rows)

    def checked_code(self, row: int, id: str, metadata: str, code: bytes) -> bytes:
        try:
            bare = code[: self.code_bits // 8]
            if code[len(bare) :] == item_seal(row, id, metadata, bare):
                return bare
        except UNREADABLE:  # the values are of other types
            pass
        raise damaged(self.path, f"the item in row {row}, {str(id)[:40]!r}, {NOT_AS_WRITTEN}")

    def list_ids(self, after: str, limit: int) -> list[str]:
        with self.reading() as connection:
            rows = self.ids.rows_after(after, limit)
            names: list[str] = []
            for start in range(0, len(rows), READ_ROWS):
                part = rows[start : start + READ_ROWS]
                items = self.checked_ids(connection, f"WHERE {LISTED_ROW}", (_json_list(part),))
                if len(items) < len(part):
                    raise damaged(self.path, DIFFER)
                names += [items[row] for row in part]
        if any(name <= before for before, name in pairwise([after, *names])):
            raise damaged(self.path, DIFFER)
        return names

    def checked_ids(self, connection: sqlite3.Connection, which: str, parameters: Sequence[object]) -> dict[int, str]:
        """Ids by row, in the order of rows."""
        select = f"SELECT row, id, metadata, code FROM items {which} ORDER BY row"
        rows = connection.execute(select, parameters).fetchall()
        self.checked_codes(rows)
        return {row: id for row, id, _, _ in rows}

    def check_strings(self, names: list[str]) -> list[str]:
        if not _all(str, names):
            raise damaged(self.path, "an id or a note is no text")
        return names

    def count(self) -> int:
        return self.ids.count()

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        counts = self.connection.execute(LABEL_COUNTS, (limit,)).fetchall()
        self.check_strings([label for label, _ in counts])
        return counts

    def photo_groups(self) -> list[PhotoGroup]:
        groups = self.connection.execute(PHOTO_GROUPS).fetchall()
        self.check_strings([text for month, camera, *_ in groups for text in (month, camera) if text is not None])
        return [PhotoGroup(month, camera, None if i is None else (i, j), n) for month, camera, i, j, n in groups]

    def mark(self) -> Mark:
        row, removal = (number or 0 for number in self.connection.execute(MARK, self.counters).fetchone())
        if not (isinstance(row, int) and isinstance(removal, int) and row >= 0 and removal >= 0):
            raise damaged(self.path, "the number of its last row or removal is no number")
        return Mark(row, removal)

    def log_start(self) -> int:
        """Removals after this one are all in `removed`; earlier ones may have been deleted from it."""
        return self._number("log_start")

    def set_code_file(self, connection: sqlite3.Connection, stamp: str, digest: str, removal: int) -> None:
        """Name the code file that counts from now on, and delete the log of removals up to that one."""
        self.ids.repack()
        connection.execute("DELETE FROM removed WHERE seq <= ?", (removal,))
        about = [("log_start", removal), ("codes", stamp), ("codes_digest", digest)]
        connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about)

    def removed_since(self, removal: int) -> NDArray[np.int64]:
        removed = self.connection.execute(self.select_removed, (removal,)).fetchall()
        if any(exists for _, exists in removed):
            raise damaged(self.path, "a row is listed as removed, but there")
        return self._rows((row for row, _ in removed))

    def added_since(self, row: int) -> tuple[list[int], list[str], bytes]:
        """Rows, ids and codes of the items that were added after a row and are not removed, in the order of rows."""
        added = self.connection.execute(self.select_added, (row,)).fetchall()
        return [number for number, *_ in added], [name for _, name, *_ in added], self.checked_codes(added)

    def rows_by_id(self) -> NDArray[np.int64]:
        """All rows in the order of ids."""
        return self.ids.rows()

    def codes_by_row(self, chunk: int) -> Iterator[tuple[NDArray[np.int64], bytes]]:
        """Rows and codes of all items in the order of rows, `chunk` at a time."""
        reader = self.connection.execute(self.select_by_row)
        while part := reader.fetchmany(chunk):
            yield np.array([row for row, *_ in part], np.int64), self.checked_codes(part)

    def _rows(self, numbers: Iterable[int]) -> NDArray[np.int64]:
        try:
            rows = np.fromiter(numbers, np.int64)
        except UNREADABLE as error:
            raise damaged(self.path, f"a row: {error}") from error
        if len(rows) and rows.min() < 0:
            raise damaged(self.path, "a row below zero")
        return rows

    def items_of(self, rows: Sequence[int]) -> dict[int, tuple[str, str, bytes]]:
        """Id, metadata (as JSON) and code by row. Many rows come as one value: Python releases the interpreter lock for
        each that SQLite returns, and in a busy server waits to get it back."""
        items: dict[int, tuple[str, str, bytes]] = {}
        for start in range(0, len(rows), READ_ROWS):
            (text,) = self.connection.execute(ITEMS_OF_ROWS, (_json_list(rows[start : start + READ_ROWS]),)).fetchone()
            try:
                part = [(row, id, entry, bytes.fromhex(code)) for row, id, entry, code in json.loads(text)]
            except UNREADABLE as error:
                raise damaged(self.path, error) from error
            items.update((row[0], (row[1], row[2], self.checked_code(*row))) for row in part)
        return items

    def rows_matching(self, filter: Filter) -> NDArray[np.int64]:
        """The rows for which a filter is true."""
        text, parameters = condition(filter)
        return self._rows(row for (row,) in self.connection.execute(f"{self.select_where} {text}", parameters))

    def notes(self) -> dict[str, str]:
        with self.reading():
            return self.checked_notes()

    def checked_notes(self) -> dict[str, str]:
        """The notes in the current transaction."""
        notes = self._notes()
        if notes_seal(notes) != self.about(NOTES_SEAL):
            raise damaged(self.path, f"a note {NOT_AS_WRITTEN}")
        return notes

    def _notes(self) -> dict[str, str]:
        pairs = self.connection.execute("SELECT key, value FROM notes").fetchall()
        self.check_strings([text for pair in pairs for text in pair])
        return dict(pairs)

    def set_note(self, key: str, value: str) -> None:
        with self.writing() as connection:
            self.checked_notes()  # a new checksum must not cover damage
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (key, value))
            seal = notes_seal(self._notes())
            connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (NOTES_SEAL, seal))

    def close(self) -> None:
        self.connection.close()


class TextStore(Store):
    """The codes of texts: a store like that of the items, on the same connection.

    A trigger deletes the codes of an item's texts with its row, in the same transaction, whichever version of kenthash
    removes or replaces it. A text's id is the id of its item and its number, with a character between them that no id
    holds and that sorts first: texts are in the order of their items.
    """

    code_suffix = ".texts.codes"
    counters = ("texts", "removed_texts")
    select_removed = (
        "SELECT row, EXISTS(SELECT 1 FROM texts WHERE row = removed_texts.row) FROM removed_texts WHERE seq > ?"
    )
    select_added = (
        f"SELECT texts.row, item, number, texts.code, {TEXT_ID} FROM {TEXTS_AND_ITEMS} WHERE texts.row > ? "
        "ORDER BY texts.row"
    )
    select_by_row = "SELECT row, item, number, code FROM texts ORDER BY row"
    select_where = f"SELECT texts.row FROM {TEXTS_AND_ITEMS} WHERE"

    def __init__(self, store: Store) -> None:
        self.items, self.path, self.connection, self._state = store, store.path, store.connection, store._state
        self.bits, self.code_bits = store.bits, store.code_bits
        self._file, self.identity, self.form, self.ids = store._file, store.identity, store.form, store.ids

    def exists(self) -> bool:
        return bool(self.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'texts'").fetchall())

    def put(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        with self.writing() as connection:
            if not self.exists():
                for statement in TEXT_TABLES:
                    connection.execute(statement)
            located = self.ids.locate(ids)
            select = f"SELECT row, metadata FROM items WHERE {LISTED_ROW}"
            present = connection.execute(select, (_json_list(located.values()),)).fetchall()
            entries = self.parse_metadata([entry for _, entry in present])
            items = {row: entry for (row, _), entry in zip(present, entries, strict=True)}
            same = [i for i, id in enumerate(ids) if id in located and items.get(located[id]) == metadata[i]]
            rows = [located[ids[i]] for i in same]
            old = "item IN (SELECT value FROM json_each(?))"
            connection.execute(f"INSERT INTO removed_texts(row) SELECT row FROM texts WHERE {old}", (_json_list(rows),))
            connection.execute(f"DELETE FROM texts WHERE {old}", (_json_list(rows),))
            new = (
                (item, n, code.tobytes()) for i, item in zip(same, rows, strict=True) for n, code in enumerate(codes[i])
            )
            connection.executemany(
                "INSERT INTO texts(row, item, number, code) VALUES (?, ?, ?, ?)",
                (
                    (row, item, n, code + text_seal(row, item, n, code))
                    for row, (item, n, code) in enumerate(new, self.mark().row + 1)
                ),
            )

    def counts(self, ids: Sequence[str]) -> list[int]:
        with self.reading() as connection:
            located = self.ids.locate(ids)
            select = "SELECT item, count(*) FROM texts WHERE item IN (SELECT value FROM json_each(?)) GROUP BY item"
            counts = dict(connection.execute(select, (_json_list(located.values()),)))
        return [counts.get(located.get(id), 0) for id in ids]

    def rows_by_id(self) -> NDArray[np.int64]:
        """In the order of the items' ids, and of the numbers of an item's texts."""
        items = self.ids.rows()
        by_row = np.argsort(items)
        texts = self.connection.execute("SELECT item, row FROM texts ORDER BY item, number").fetchall()
        owners, rows = np.array(texts, np.int64).reshape(-1, 2).T
        places = np.searchsorted(items, owners, sorter=by_row)
        if len(owners) and (places.max() == len(items) or (items[by_row[places]] != owners).any()):
            raise damaged(self.path, "texts of items that do not exist")
        return rows[np.argsort(by_row[places], kind="stable")]

    def about(self, key: str) -> str | int | None:
        return self.items.about(f"texts {key}")

    def set_code_file(self, connection: sqlite3.Connection, stamp: str, digest: str, removal: int) -> None:
        connection.execute("DELETE FROM removed_texts WHERE seq <= ?", (removal,))
        about = [("texts log_start", removal), ("texts codes", stamp), ("texts codes_digest", digest)]
        connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about)

    def items_of(self, rows: Sequence[int]) -> dict[int, tuple[str, str, bytes]]:
        texts: dict[int, tuple[str, str, bytes]] = {}
        for start in range(0, len(rows), READ_ROWS):
            (text,) = self.connection.execute(TEXTS_OF_ROWS, (_json_list(rows[start : start + READ_ROWS]),)).fetchone()
            try:
                for row, item, id, number, entry, code, item_code in json.loads(text):
                    bare = self.checked_text(row, item, number, bytes.fromhex(code))
                    self.checked_code(item, id, entry, bytes.fromhex(item_code))
                    texts[row] = f"{id}{SEPARATOR}{number:d}", entry, bare
            except UNREADABLE as error:
                raise damaged(self.path, error) from error
        return texts

    def added_since(self, row: int) -> tuple[list[int], list[str], bytes]:
        added = self.connection.execute(self.select_added, (row,)).fetchall()
        codes = b"".join(self.checked_text(*text[:4]) for text in added)
        return [text[0] for text in added], self.check_strings([text[4] for text in added]), codes

    def codes_by_row(self, chunk: int) -> Iterator[tuple[NDArray[np.int64], bytes]]:
        reader = self.connection.execute(self.select_by_row)
        while part := reader.fetchmany(chunk):
            yield np.array([text[0] for text in part], np.int64), b"".join(self.checked_text(*text) for text in part)

    def checked_text(self, row: int, item: int, number: int, code: bytes) -> bytes:
        """The code of a text without its checksum, which is compared."""
        try:
            bare = code[: self.code_bits // 8]
            if code[len(bare) :] == text_seal(row, item, number, bare):
                return bare
        except UNREADABLE:
            pass
        raise damaged(self.path, f"the code of a text in row {row} {NOT_AS_WRITTEN}")


def condition(term: Filter) -> tuple[str, list[Literal]]:
    """A filter as SQL on the column `metadata`, a JSON object, and its parameters: values are never part of the SQL.
    The result is 1 or 0, never NULL."""
    match term:
        case Compare(key, op, value) if op in OPERATORS:
            text = (
                f"ifnull(json_type(metadata, ?) IN ({JSON_TYPES[kind(value)]}) AND json_extract(metadata, ?) {op} ?, 0)"
            )
            return text, [_json_path(key), _json_path(key), value]
        case Among(key, values):
            return condition(Or(tuple(Compare(key, "=", value) for value in values)))
        case Has(key, value):
            text = "EXISTS (SELECT 1 FROM json_each(metadata, ?) AS part WHERE part.type = 'text' AND part.value = ?)"
            path = _json_path(key)
            contains = "json_type(metadata, ?) IS 'text' AND instr(json_extract(metadata, ?), ?)"
            return f"((json_type(metadata, ?) IS 'array' AND {text}) OR ({contains}))", [path, path, value] * 2
        case IsNull(key):
            return "ifnull(json_type(metadata, ?), 'null') = 'null'", [_json_path(key)]
        case NearPlace():
            box, parameters = condition(term.box())
            place = "json_extract(metadata, '$.latitude'), json_extract(metadata, '$.longitude')"
            is_place = f"{box} AND json_type(metadata, '$.longitude') IN ({JSON_TYPES['number']})"
            text = f"CASE WHEN {is_place} THEN near({place}, ?, ?, ?) ELSE 0 END"
            return f"({text})", [*parameters, term.latitude, term.longitude, term.km]
        case Not(inner):
            text, parameters = condition(inner)
            return f"NOT {text}", parameters
        case And(terms) | Or(terms):
            parts = [condition(part) for part in terms]
            joined = (" AND " if isinstance(term, And) else " OR ").join(text for text, _ in parts)
            return f"({joined})", [value for _, values in parts for value in values]
        case _:
            raise AssertionError(f"no such filter: {term}")


def _json_path(key: str) -> str:
    return f'$."{key}"'  # keys hold neither quotes nor backslashes


def _all(type_: type, values: Sequence[object]) -> bool:
    return set(map(type, values)) <= {type_}


def _json(entry: Metadata) -> str:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")) if entry else "{}"


def _json_list(values: Iterable[object]) -> str:
    """Values as one parameter, for `json_each`."""
    return json.dumps(list(values))


def _batched(values: Iterator[object], size: int) -> Iterator[tuple[object, ...]]:
    while batch := tuple(islice(values, size)):
        yield batch
