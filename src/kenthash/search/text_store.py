"""The codes of texts in the SQLite file of a local index: a store like that of the items, in tables of its own.

The tables are made when the first texts get codes, so that a file without texts stays as it was. A trigger drops the
codes of an item's texts with its row, in the same transaction, whichever version of kenthash removes or replaces it.
A text's id is that of its item and its number, with a character between them that no id holds and that sorts first:
texts stand in the order of their items.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.search.engine import Metadata
from kenthash.search.filters import Filter
from kenthash.search.schema import errors
from kenthash.search.sql import condition
from kenthash.search.store import AT_ONCE, Mark, Store

SEPARATOR = "\0"
TABLES = (
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
JOINED = "texts JOIN items ON items.row = texts.item"
ID = "items.id || char(0) || texts.number"
MARK = (
    "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'texts'), "
    "(SELECT seq FROM sqlite_sequence WHERE name = 'removed_texts')"
)
NAMED = (
    "SELECT json_group_array(json_array(texts.row, items.id, texts.number, metadata, hex(texts.code))) "
    f"FROM {JOINED} WHERE texts.row IN (SELECT value FROM json_each(?))"
)


class TextStore(Store):
    """What a search asks a store, answered for texts; the connection is that of the store of items."""

    code_suffix = ".texts.codes"

    def __init__(self, store: Store) -> None:
        self.items, self.path, self.connection, self._state = store, store.path, store.connection, store._state
        self.bits, self.identity, self.form = store.bits, store.identity, store.form

    def exists(self) -> bool:
        with errors(self.path):
            return bool(self.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'texts'").fetchall())

    def put(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        with self.writing() as connection:
            if not self.exists():
                for statement in TABLES:
                    connection.execute(statement)
            held = "SELECT id, row, metadata FROM items WHERE id IN (SELECT value FROM json_each(?))"
            there = {id: (row, json.loads(entry)) for id, row, entry in connection.execute(held, (_json(ids),))}
            same = [i for i, id in enumerate(ids) if id in there and there[id][1] == metadata[i]]
            rows = [there[ids[i]][0] for i in same]
            old = "item IN (SELECT value FROM json_each(?))"
            connection.execute(f"INSERT INTO removed_texts(row) SELECT row FROM texts WHERE {old}", (_json(rows),))
            connection.execute(f"DELETE FROM texts WHERE {old}", (_json(rows),))
            connection.executemany(
                "INSERT INTO texts(item, number, code) VALUES (?, ?, ?)",
                (
                    (row, n, code.tobytes())
                    for i, row in zip(same, rows, strict=True)
                    for n, code in enumerate(codes[i])
                ),
            )

    def counts(self, ids: Sequence[str]) -> list[int]:
        counted = f"SELECT id, count(*) FROM {JOINED} WHERE id IN (SELECT value FROM json_each(?)) GROUP BY id"
        with errors(self.path):
            counts = dict(self.connection.execute(counted, (_json(ids),)))
        return [counts.get(id, 0) for id in ids]

    def about(self, key: str) -> str | int | None:
        return self.items.about(f"texts {key}")

    def mark(self) -> Mark:
        row, removal = self.connection.execute(MARK).fetchone()
        return Mark(row or 0, removal or 0)

    def replace_codes(self, connection: sqlite3.Connection, stamp: str, digest: str, removal: int) -> None:
        connection.execute("DELETE FROM removed_texts WHERE seq <= ?", (removal,))
        about = [("texts log_start", removal), ("texts codes", stamp), ("texts codes_digest", digest)]
        connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about)

    def removed_since(self, removal: int) -> NDArray[np.int64]:
        rows = self.connection.execute("SELECT row FROM removed_texts WHERE seq > ?", (removal,))
        return np.fromiter((row for (row,) in rows), np.int64)

    def added_since(self, row: int) -> Iterator[tuple[int, str, bytes]]:
        text = f"SELECT texts.row, {ID}, texts.code FROM {JOINED} WHERE texts.row > ? ORDER BY texts.row"
        yield from self.connection.execute(text, (row,))

    def rows_by_id(self) -> NDArray[np.int64]:
        rows = self.connection.execute(f"SELECT texts.row FROM {JOINED} ORDER BY items.id, texts.number")
        return np.fromiter((row for (row,) in rows), np.int64)

    def codes_by_row(self) -> sqlite3.Cursor:
        return self.connection.execute("SELECT code FROM texts ORDER BY row")

    def named(self, rows: Sequence[int]) -> dict[int, tuple[str, str, bytes]]:
        there: dict[int, tuple[str, str, bytes]] = {}
        for start in range(0, len(rows), AT_ONCE):
            (found,) = self.connection.execute(NAMED, (_json(rows[start : start + AT_ONCE]),)).fetchone()
            for row, id, number, entry, code in json.loads(found):
                there[row] = f"{id}{SEPARATOR}{number}", entry, bytes.fromhex(code)
        return there

    def matching(self, filter: Filter) -> NDArray[np.int64]:
        text, values = condition(filter)
        rows = self.connection.execute(f"SELECT texts.row FROM {JOINED} WHERE {text}", values)
        return np.fromiter((row for (row,) in rows), np.int64)


def _json(values: Sequence[object]) -> str:
    return json.dumps(list(values))
