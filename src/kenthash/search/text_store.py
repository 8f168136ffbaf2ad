"""The codes of texts in the SQLite file of a local index: a store like that of the items, in tables of its own.

The tables are made when the first texts get codes, so that a file without texts stays as it was. A trigger drops the
codes of an item's texts with its row, in the same transaction, whichever version of kenthash removes or replaces it.
A text's id is that of its item and its number, with a character between them that no id holds and that sorts first:
texts stand in the order of their items.
"""

import json
import sqlite3
from collections.abc import Sequence

from kenthash.codes import Codes
from kenthash.search.engine import Metadata
from kenthash.search.schema import damaged
from kenthash.search.store import AT_ONCE, UNREADABLE, Store

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
NAMED = (
    "SELECT json_group_array(json_array(texts.row, items.id, texts.number, metadata, hex(texts.code))) "
    f"FROM {JOINED} WHERE texts.row IN (SELECT value FROM json_each(?))"
)


class TextStore(Store):
    """What a search asks a store, answered for texts; the connection is that of the store of items."""

    code_suffix = ".texts.codes"
    counters = ("texts", "removed_texts")
    removed = "SELECT row FROM removed_texts WHERE seq > ?"
    added = f"SELECT texts.row, {ID}, texts.code FROM {JOINED} WHERE texts.row > ? ORDER BY texts.row"
    by_id = f"SELECT texts.row FROM {JOINED} ORDER BY items.id, texts.number"
    by_row = "SELECT row, code FROM texts ORDER BY row"
    matches = f"SELECT texts.row FROM {JOINED} WHERE"

    def __init__(self, store: Store) -> None:
        self.items, self.path, self.connection, self._state = store, store.path, store.connection, store._state
        self.bits, self.identity, self.form = store.bits, store.identity, store.form

    def exists(self) -> bool:
        return bool(self.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'texts'").fetchall())

    def put(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        with self.writing() as connection:
            if not self.exists():
                for statement in TABLES:
                    connection.execute(statement)
            held = "SELECT id, row, metadata FROM items WHERE id IN (SELECT value FROM json_each(?))"
            found = connection.execute(held, (_json(ids),)).fetchall()
            entries = self.metadata([entry for _, _, entry in found])
            there = {id: (row, entry) for (id, row, _), entry in zip(found, entries, strict=True)}
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
        counts = dict(self.connection.execute(counted, (_json(ids),)))
        return [counts.get(id, 0) for id in ids]

    def about(self, key: str) -> str | int | None:
        return self.items.about(f"texts {key}")

    def replace_codes(self, connection: sqlite3.Connection, stamp: str, digest: str, removal: int) -> None:
        connection.execute("DELETE FROM removed_texts WHERE seq <= ?", (removal,))
        about = [("texts log_start", removal), ("texts codes", stamp), ("texts codes_digest", digest)]
        connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about)

    def named(self, rows: Sequence[int]) -> dict[int, tuple[str, str, bytes]]:
        there: dict[int, tuple[str, str, bytes]] = {}
        for start in range(0, len(rows), AT_ONCE):
            (text,) = self.connection.execute(NAMED, (_json(rows[start : start + AT_ONCE]),)).fetchone()
            try:
                found = json.loads(text)
                for row, id, number, entry, code in found:
                    there[row] = f"{id}{SEPARATOR}{number:d}", entry, bytes.fromhex(code)
            except UNREADABLE as error:
                raise damaged(self.path, error) from error
            self.texts([id for _, id, _, _, _ in found])
        return there


def _json(values: Sequence[object]) -> str:
    return json.dumps(list(values))
