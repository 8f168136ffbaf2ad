"""The truth of a local index: ids, codes and metadata in one SQLite file.

Every change is one transaction in write-ahead mode, flushed to disk before the call returns: once `add` has returned,
its items survive a kill or a power cut; if it has not, either all or none of them are there. SQLite's lock admits one
writer at a time, others wait; a reader keeps the state that it began with.

Rows are numbered in the order in which items are added, and no number is used twice; a replaced item gets a new row,
and the rows of removed items are listed in `removed`. So a cache that knows up to which row and removal it has read
(`Mark`) reads only what came later.

The codes of texts are in tables of their own (`TextStore`), which are created when the first texts get codes, so that a
file without texts stays as it was.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import MAX_BITS, MIN_BITS, Codes
from kenthash.errors import DataError, KenthashError
from kenthash.search.engine import Item, Metadata
from kenthash.search.filters import OPERATORS, Among, And, Compare, Filter, Has, IsNull, Literal, Not, Or, kind
from kenthash.search.schema import READ_ONLY, FileState, create_file, damaged, errors, file_state, open_file

FORMS = ("fast", "compact", "scan")
INSERT_ROWS = 128  # rows inserted by one statement
READ_ROWS = 2048  # rows read as one value, which SQLite limits to 10^9 bytes; metadata have 2^16 at most
UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError)  # raised by values that kenthash did not write
MARK = "SELECT (SELECT seq FROM sqlite_sequence WHERE name = ?), (SELECT seq FROM sqlite_sequence WHERE name = ?)"
ITEMS_OF_ROWS = (
    "SELECT json_group_array(json_array(row, id, metadata, hex(code))) FROM items "
    "WHERE row IN (SELECT value FROM json_each(?))"
)

LABEL_COUNTS = (
    "SELECT label.value, count(DISTINCT row) AS items FROM items, json_each(metadata, '$.labels') AS label "
    "WHERE json_type(metadata, '$.labels') = 'array' GROUP BY label.value ORDER BY items DESC, label.value LIMIT ?"
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
    "SELECT json_group_array(json_array(texts.row, items.id, texts.number, metadata, hex(texts.code))) "
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
    select_removed = "SELECT row FROM removed WHERE seq > ?"
    select_added = "SELECT row, id, code FROM items WHERE row > ? ORDER BY row"
    select_by_id = "SELECT row FROM items INDEXED BY sqlite_autoindex_items_1 ORDER BY id"  # SQLite's index of the ids
    select_by_row = "SELECT row, code FROM items ORDER BY row"
    select_where = "SELECT row FROM items WHERE"

    def __init__(self, path: Path, connection: sqlite3.Connection, unchanged_since: FileState | None = None) -> None:
        self.path, self.connection, self._state = path, connection, unchanged_since
        self.bits, self.identity, self.form = self._number("bits"), str(self.about("identity")), str(self.about("form"))
        if self.bits % 8 or not MIN_BITS <= self.bits <= MAX_BITS or self.form not in FORMS:
            raise damaged(path, f"codes of {self.bits} bits in the form {self.form[:20]!r}")

    @classmethod
    def create(cls, path: Path, bits: int, form: str) -> "Store":
        create_file(path, bits, form)
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

    def outdated(self) -> bool:
        """Whether the file changed though it was opened as immutable (see `open_file`)."""
        return self._state is not None and (
            file_state(self.path) != self._state or self.path.with_name(self.path.name + "-wal").exists()
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
        try:
            yield self.connection
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction in which all reads see one state of the store, whatever writers do."""
        self.connection.execute("BEGIN")
        try:
            yield self.connection
        finally:
            self.connection.execute("COMMIT")

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        with self.writing() as connection:
            before = self.mark().row
            try:
                self._insert(connection, ids, codes, metadata)
            except sqlite3.IntegrityError:  # rows after `before` are of this call
                existing = connection.execute(
                    "SELECT id FROM items WHERE row <= ? AND id IN (SELECT value FROM json_each(?)) ORDER BY id",
                    (before, _json_list(ids)),
                ).fetchone()
                if existing is None:
                    raise
                raise DataError(
                    f"{self.path}: id {existing[0]!r} is in the index already: use upsert to replace"
                ) from None

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        with self.writing() as connection:
            _remove(connection, ids)
            self._insert(connection, ids, codes, metadata)

    def remove(self, ids: Sequence[str]) -> int:
        with self.writing() as connection:
            return _remove(connection, ids)

    def _insert(
        self, connection: sqlite3.Connection, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]
    ) -> None:
        """Many rows per statement, in the order of ids: twice as fast as one by one, also for the index of ids."""
        blobs = codes.reshape(-1).view(f"V{codes.shape[1]}").tolist()
        order = sorted(range(len(ids)), key=ids.__getitem__)
        even = len(order) // INSERT_ROWS * INSERT_ROWS
        for size, part in ((INSERT_ROWS, order[:even]), (1, order[even:])):
            values = ((ids[i], blobs[i], _json(metadata[i])) for i in part)
            statement = "INSERT INTO items(id, code, metadata) VALUES " + ", ".join(["(?, ?, ?)"] * size)
            connection.executemany(statement, _batched(chain.from_iterable(values), 3 * size))

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        rows = self.connection.execute(
            "SELECT id, code, metadata FROM items WHERE id IN (SELECT value FROM json_each(?))",
            (_json_list(ids),),
        ).fetchall()
        entries = self.parse_metadata([entry for _, _, entry in rows])
        self.join_codes([code for _, code, _ in rows])
        items = {
            name: Item(name, np.frombuffer(code, np.uint8), entry)
            for (name, code, _), entry in zip(rows, entries, strict=True)
        }
        return [items.get(name) for name in ids]

    def parse_metadata(self, texts: Sequence[str]) -> list[Metadata]:
        """The metadata of several items from their JSON: parsed one by one they would take several times as long."""
        try:
            entries: list[Metadata] = json.loads("[" + ",".join(texts) + "]")
        except UNREADABLE as error:
            raise damaged(self.path, f"metadata: {error}") from error
        if len(entries) != len(texts) or not _all(dict, entries):
            raise damaged(self.path, "metadata that are no JSON object")
        return entries

    def join_codes(self, codes: Sequence[bytes]) -> bytes:
        """Codes as one string of bytes; each must have the right length."""
        if not _all(bytes, codes) or set(map(len, codes)) - {self.bits // 8}:
            raise damaged(self.path, f"a code that does not have {self.bits} bits")
        return b"".join(codes)

    def list_ids(self, after: str, limit: int) -> list[str]:
        rows = self.connection.execute("SELECT id FROM items WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
        return self.check_strings([name for (name,) in rows])

    def check_strings(self, names: list[str]) -> list[str]:
        if not _all(str, names):
            raise damaged(self.path, "an id or a note is no text")
        return names

    def count(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM items").fetchone()[0])

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        counts = self.connection.execute(LABEL_COUNTS, (limit,)).fetchall()
        self.check_strings([label for label, _ in counts])
        return counts

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
        connection.execute("DELETE FROM removed WHERE seq <= ?", (removal,))
        about = [("log_start", removal), ("codes", stamp), ("codes_digest", digest)]
        connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about)

    def removed_since(self, removal: int) -> NDArray[np.int64]:
        return self._rows(self.connection.execute(self.select_removed, (removal,)))

    def added_since(self, row: int) -> tuple[list[int], list[str], bytes]:
        """Rows, ids and codes of the items that were added after a row and are not removed, in the order of rows."""
        added = self.connection.execute(self.select_added, (row,)).fetchall()
        names = self.check_strings([name for _, name, _ in added])
        return [number for number, _, _ in added], names, self.join_codes([code for _, _, code in added])

    def rows_by_id(self) -> NDArray[np.int64]:
        """All rows in the order of ids."""
        return self._rows(self.connection.execute(self.select_by_id))

    def codes_by_row(self, chunk: int) -> Iterator[tuple[NDArray[np.int64], bytes]]:
        """Rows and codes of all items in the order of rows, `chunk` at a time."""
        reader = self.connection.execute(self.select_by_row)
        while part := reader.fetchmany(chunk):
            yield np.array([row for row, _ in part], np.int64), self.join_codes([code for _, code in part])

    def _rows(self, cursor: sqlite3.Cursor) -> NDArray[np.int64]:
        try:
            rows = np.fromiter((row for (row,) in cursor), np.int64)
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
                part = json.loads(text)
                items.update((row, (name, entry, bytes.fromhex(code))) for row, name, entry, code in part)
            except UNREADABLE as error:
                raise damaged(self.path, error) from error
            self.check_strings([name for _, name, _, _ in part])
        return items

    def rows_matching(self, filter: Filter) -> NDArray[np.int64]:
        """The rows for which a filter is true."""
        text, parameters = condition(filter)
        return self._rows(self.connection.execute(f"{self.select_where} {text}", parameters))

    def notes(self) -> dict[str, str]:
        pairs = self.connection.execute("SELECT key, value FROM notes").fetchall()
        self.check_strings([text for pair in pairs for text in pair])
        return dict(pairs)

    def set_note(self, key: str, value: str) -> None:
        with self.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (key, value))

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
    select_removed = "SELECT row FROM removed_texts WHERE seq > ?"
    select_added = (
        f"SELECT texts.row, {TEXT_ID}, texts.code FROM {TEXTS_AND_ITEMS} WHERE texts.row > ? ORDER BY texts.row"
    )
    select_by_id = f"SELECT texts.row FROM {TEXTS_AND_ITEMS} ORDER BY items.id, texts.number"
    select_by_row = "SELECT row, code FROM texts ORDER BY row"
    select_where = f"SELECT texts.row FROM {TEXTS_AND_ITEMS} WHERE"

    def __init__(self, store: Store) -> None:
        self.items, self.path, self.connection, self._state = store, store.path, store.connection, store._state
        self.bits, self.identity, self.form = store.bits, store.identity, store.form

    def exists(self) -> bool:
        return bool(self.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'texts'").fetchall())

    def put(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        with self.writing() as connection:
            if not self.exists():
                for statement in TEXT_TABLES:
                    connection.execute(statement)
            select = "SELECT id, row, metadata FROM items WHERE id IN (SELECT value FROM json_each(?))"
            present = connection.execute(select, (_json_list(ids),)).fetchall()
            entries = self.parse_metadata([entry for _, _, entry in present])
            items = {id: (row, entry) for (id, row, _), entry in zip(present, entries, strict=True)}
            same = [i for i, id in enumerate(ids) if id in items and items[id][1] == metadata[i]]
            rows = [items[ids[i]][0] for i in same]
            old = "item IN (SELECT value FROM json_each(?))"
            connection.execute(f"INSERT INTO removed_texts(row) SELECT row FROM texts WHERE {old}", (_json_list(rows),))
            connection.execute(f"DELETE FROM texts WHERE {old}", (_json_list(rows),))
            connection.executemany(
                "INSERT INTO texts(item, number, code) VALUES (?, ?, ?)",
                (
                    (row, n, code.tobytes())
                    for i, row in zip(same, rows, strict=True)
                    for n, code in enumerate(codes[i])
                ),
            )

    def counts(self, ids: Sequence[str]) -> list[int]:
        select = f"SELECT id, count(*) FROM {TEXTS_AND_ITEMS} WHERE id IN (SELECT value FROM json_each(?)) GROUP BY id"
        counts = dict(self.connection.execute(select, (_json_list(ids),)))
        return [counts.get(id, 0) for id in ids]

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
                part = json.loads(text)
                for row, id, number, entry, code in part:
                    texts[row] = f"{id}{SEPARATOR}{number:d}", entry, bytes.fromhex(code)
            except UNREADABLE as error:
                raise damaged(self.path, error) from error
            self.check_strings([id for _, id, _, _, _ in part])
        return texts


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
            return f"(json_type(metadata, ?) IS 'array' AND {text})", [_json_path(key), _json_path(key), value]
        case IsNull(key):
            return "ifnull(json_type(metadata, ?), 'null') = 'null'", [_json_path(key)]
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
    return json.dumps(entry, ensure_ascii=False) if entry else "{}"


def _json_list(values: Sequence[object]) -> str:
    """Values as one parameter, for `json_each`."""
    return json.dumps(list(values))


def _batched(values: Iterator[object], size: int) -> Iterator[tuple[object, ...]]:
    while batch := tuple(islice(values, size)):
        yield batch


def _remove(connection: sqlite3.Connection, ids: Sequence[str]) -> int:
    parameters = (_json_list(ids),)
    which = "id IN (SELECT value FROM json_each(?))"
    connection.execute(f"INSERT INTO removed(row) SELECT row FROM items WHERE {which}", parameters)
    return connection.execute(f"DELETE FROM items WHERE {which}", parameters).rowcount
