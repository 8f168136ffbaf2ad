"""The words of items in a local index, by SQLite's full-text index FTS5: people remember names.

An item's words are those of its id, which for a picture are the names of its folders and its file, of its texts and of
its labels. Words are compared by their stems (Porter), without accents, and by how they begin: "beach" finds
`Beaches2019/img.jpg`. The index keeps no copy of the texts. It is made by `update`, up to the last row; a trigger
removes the words of an item with its row.
"""

import re

from kenthash.search.engine import Metadata, texts_of
from kenthash.search.local.sqlite import sqlite3
from kenthash.search.local.store import Store

LAST_ROW = "words row"  # in the table `about`: the last row whose words are in
NEEDED = (3, 43, 0)  # the first SQLite whose full-text indexes without contents can forget rows
MOST = 32  # words of a query
ROWS = 1000  # per statement
TABLES = (
    """
    CREATE VIRTUAL TABLE words USING fts5(body, content='', contentless_delete=1,
                                          tokenize='porter unicode61 remove_diacritics 2')
    """,
    """
    CREATE TRIGGER words_of_removed AFTER DELETE ON items BEGIN
        DELETE FROM words WHERE rowid = OLD.row;
    END
    """,
)


def words_of(id: str, metadata: Metadata) -> str:
    labels = metadata.get("labels")
    return " ".join([id, *texts_of(metadata), *(labels if isinstance(labels, list) else ())])


def update(store: Store) -> None:
    """Add the words of the items that have come since the last time."""
    if sqlite3.sqlite_version_info < NEEDED:
        return
    with store.writing() as connection:
        if not _exists(store):
            for statement in TABLES:
                connection.execute(statement)
        last = store.about(LAST_ROW) or 0
        rows = connection.execute("SELECT row, id, metadata FROM items WHERE row > ? ORDER BY row", (last,))
        while part := rows.fetchmany(ROWS):
            store.check_strings([id for _, id, _ in part])
            entries = store.parse_metadata([entry for _, _, entry in part])
            connection.executemany(
                "INSERT INTO words(rowid, body) VALUES (?, ?)",
                [(row, words_of(id, entry)) for (row, id, _), entry in zip(part, entries, strict=True)],
            )
        connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (LAST_ROW, store.mark().row))


def matching(store: Store, text: str, limit: int) -> list[str]:
    """Up to `limit` ids of items that have all words of a text, in the order in which they were added."""
    words = re.findall(r"[^\W_]+", text)[:MOST]
    if not words or sqlite3.sqlite_version_info < NEEDED or not _exists(store):
        return []
    query = " ".join(f'"{word}"*' for word in words)
    select = "SELECT id FROM items WHERE row IN (SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid LIMIT ?)"
    return store.check_strings([id for (id,) in store.connection.execute(select, (query, limit))])


def _exists(store: Store) -> bool:
    return bool(store.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchall())
