"""The truth of a local index: ids, codes and metadata in one SQLite file.

Every change is one transaction in write-ahead mode, flushed to disk before it is acknowledged: what `add` returned for
survives a kill or a power cut, and what it did not return for is wholly there or wholly absent. SQLite's lock admits
one writer at a time, others wait; a reader keeps the state it began with.

Rows are numbered in the order they came and never twice; a replaced item gets a new row, and the rows that went are
listed in `removed`. So a cache that knows up to which row and removal it has read catches up with the rest alone.
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
from kenthash.search.filters import Filter
from kenthash.search.schema import READ_ONLY, FileState, create_file, damaged, errors, file_state, open_file
from kenthash.search.sql import condition

FORMS = ("fast", "compact", "scan")
TOGETHER = 128  # rows inserted by one statement
AT_ONCE = 2048  # rows read as one value, of which SQLite takes 10^9 bytes; metadata has 2^16 at most
UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError)  # of values that kenthash did not write
MARK = "SELECT (SELECT seq FROM sqlite_sequence WHERE name = ?), (SELECT seq FROM sqlite_sequence WHERE name = ?)"
NAMED = (
    "SELECT json_group_array(json_array(row, id, metadata, hex(code))) FROM items "
    "WHERE row IN (SELECT value FROM json_each(?))"
)

LABEL_COUNTS = (
    "SELECT label.value, count(DISTINCT row) AS items FROM items, json_each(metadata, '$.labels') AS label "
    "WHERE json_type(metadata, '$.labels') = 'array' GROUP BY label.value ORDER BY items DESC, label.value LIMIT ?"
)


@dataclass(frozen=True, order=True)
class Mark:
    """How far the store has come: the last row given and the last removal, both ever growing."""

    row: int
    removal: int


class Store:
    """One connection, for one call at a time (see `connections`)."""

    code_suffix = ".codes"  # what the names of code files end with
    counters = ("items", "removed")  # the tables whose numbers say how far the store has come
    removed = "SELECT row FROM removed WHERE seq > ?"
    added = "SELECT row, id, code FROM items WHERE row > ? ORDER BY row"
    by_id = "SELECT row FROM items INDEXED BY sqlite_autoindex_items_1 ORDER BY id"  # from SQLite's own index of them
    by_row = "SELECT row, code FROM items ORDER BY row"
    matches = "SELECT row FROM items WHERE"

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
        """Whether the file changed though it was opened as one that cannot (see `open_file`)."""
        return self._state is not None and (
            file_state(self.path) != self._state or self.path.with_name(self.path.name + "-wal").exists()
        )

    def about(self, key: str) -> str | int | None:
        found = self.connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return found[0] if found else None

    def _number(self, key: str) -> int:
        found = self.about(key) or 0
        if not isinstance(found, int):
            raise damaged(self.path, f"{key} is {str(found)[:20]!r}")
        return found

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
        """One state of the store for as long as this lasts, whatever writers do."""
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
            except sqlite3.IntegrityError:  # rows after `before` are of this batch
                there = connection.execute(
                    "SELECT id FROM items WHERE row <= ? AND id IN (SELECT value FROM json_each(?)) ORDER BY id",
                    (before, json.dumps(list(ids))),
                ).fetchone()
                if there is None:
                    raise
                raise DataError(
                    f"{self.path}: id {there[0]!r} is in the index already: use upsert to replace"
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
        """Many rows a statement, in the order of ids: twice as fast as one by one, and kind to the index of ids."""
        blobs = codes.reshape(-1).view(f"V{codes.shape[1]}").tolist()
        order = sorted(range(len(ids)), key=ids.__getitem__)
        even = len(order) // TOGETHER * TOGETHER
        for size, part in ((TOGETHER, order[:even]), (1, order[even:])):
            values = ((ids[i], blobs[i], _json(metadata[i])) for i in part)
            statement = "INSERT INTO items(id, code, metadata) VALUES " + ", ".join(["(?, ?, ?)"] * size)
            connection.executemany(statement, _batched(chain.from_iterable(values), 3 * size))

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        rows = self.connection.execute(
            "SELECT id, code, metadata FROM items WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        ).fetchall()
        entries = self.metadata([entry for _, _, entry in rows])
        self.joined([code for _, code, _ in rows])
        there = {
            name: Item(name, np.frombuffer(code, np.uint8), entry)
            for (name, code, _), entry in zip(rows, entries, strict=True)
        }
        return [there.get(name) for name in ids]

    def metadata(self, texts: Sequence[str]) -> list[Metadata]:
        """The metadata of items, as JSON in the store, together: one by one takes several times as long."""
        try:
            entries: list[Metadata] = json.loads("[" + ",".join(texts) + "]")
        except UNREADABLE as error:
            raise damaged(self.path, f"metadata: {error}") from error
        if len(entries) != len(texts) or not _all(dict, entries):
            raise damaged(self.path, "metadata that are no JSON object")
        return entries

    def joined(self, codes: Sequence[bytes]) -> bytes:
        """Codes one after the other, each as long as it should be."""
        if not _all(bytes, codes) or set(map(len, codes)) - {self.bits // 8}:
            raise damaged(self.path, f"a code that does not have {self.bits} bits")
        return b"".join(codes)

    def list_ids(self, after: str, limit: int) -> list[str]:
        rows = self.connection.execute("SELECT id FROM items WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
        return self.texts([name for (name,) in rows])

    def texts(self, names: list[str]) -> list[str]:
        if not _all(str, names):
            raise damaged(self.path, "an id or a note is no text")
        return names

    def count(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM items").fetchone()[0])

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        found = self.connection.execute(LABEL_COUNTS, (limit,)).fetchall()
        self.texts([label for label, _ in found])
        return found

    def mark(self) -> Mark:
        row, removal = (number or 0 for number in self.connection.execute(MARK, self.counters).fetchone())
        if not (isinstance(row, int) and isinstance(removal, int) and row >= 0 and removal >= 0):
            raise damaged(self.path, "how far it has come is no number")
        return Mark(row, removal)

    def log_start(self) -> int:
        """Removals after this one are all in `removed`; earlier ones may have been cleared away."""
        return self._number("log_start")

    def replace_codes(self, connection: sqlite3.Connection, stamp: str, digest: str, removal: int) -> None:
        """Name the code file that counts from now on, and clear away the removals that it knows."""
        connection.execute("DELETE FROM removed WHERE seq <= ?", (removal,))
        about = [("log_start", removal), ("codes", stamp), ("codes_digest", digest)]
        connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about)

    def removed_since(self, removal: int) -> NDArray[np.int64]:
        return self._rows(self.connection.execute(self.removed, (removal,)))

    def added_since(self, row: int) -> tuple[list[int], list[str], bytes]:
        """Rows, ids and codes of the items after a row that are still there, in the order they came."""
        found = self.connection.execute(self.added, (row,)).fetchall()
        names = self.texts([name for _, name, _ in found])
        return [number for number, _, _ in found], names, self.joined([code for _, _, code in found])

    def rows_by_id(self) -> NDArray[np.int64]:
        """All rows in the order of ids."""
        return self._rows(self.connection.execute(self.by_id))

    def codes_by_row(self, chunk: int) -> Iterator[tuple[NDArray[np.int64], bytes]]:
        """Rows and codes of all items in the order of rows, so many at a time."""
        reader = self.connection.execute(self.by_row)
        while part := reader.fetchmany(chunk):
            yield np.array([row for row, _ in part], np.int64), self.joined([code for _, code in part])

    def _rows(self, found: sqlite3.Cursor) -> NDArray[np.int64]:
        try:
            rows = np.fromiter((row for (row,) in found), np.int64)
        except UNREADABLE as error:
            raise damaged(self.path, f"a row: {error}") from error
        if len(rows) and rows.min() < 0:
            raise damaged(self.path, "a row below zero")
        return rows

    def named(self, rows: Sequence[int]) -> dict[int, tuple[str, str, bytes]]:
        """Id, metadata (as JSON) and code by row. Many rows come as one value: Python lets go of its interpreter for
        each that SQLite returns, and in a busy server waits to have it back."""
        there: dict[int, tuple[str, str, bytes]] = {}
        for start in range(0, len(rows), AT_ONCE):
            part = (json.dumps(rows[start : start + AT_ONCE]),)
            (text,) = self.connection.execute(NAMED, part).fetchone()
            try:
                found = json.loads(text)
                there.update((row, (name, entry, bytes.fromhex(code))) for row, name, entry, code in found)
            except UNREADABLE as error:
                raise damaged(self.path, error) from error
            self.texts([name for _, name, _, _ in found])
        return there

    def matching(self, filter: Filter) -> NDArray[np.int64]:
        """The rows for which a filter is true."""
        text, parameters = condition(filter)
        return self._rows(self.connection.execute(f"{self.matches} {text}", parameters))

    def notes(self) -> dict[str, str]:
        found = self.connection.execute("SELECT key, value FROM notes").fetchall()
        self.texts([text for pair in found for text in pair])
        return dict(found)

    def note(self, key: str, value: str) -> None:
        with self.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (key, value))

    def close(self) -> None:
        self.connection.close()


def _all(kind: type, held: Sequence[object]) -> bool:
    return set(map(type, held)) <= {kind}


def _json(entry: Metadata) -> str:
    return json.dumps(entry, ensure_ascii=False) if entry else "{}"


def _batched(values: Iterator[object], size: int) -> Iterator[tuple[object, ...]]:
    while batch := tuple(islice(values, size)):
        yield batch


def _remove(connection: sqlite3.Connection, ids: Sequence[str]) -> int:
    gone = (json.dumps(list(ids)),)
    which = "id IN (SELECT value FROM json_each(?))"
    connection.execute(f"INSERT INTO removed(row) SELECT row FROM items WHERE {which}", gone)
    return connection.execute(f"DELETE FROM items WHERE {which}", gone).rowcount
