"""The words of items in a local index, by SQLite's full-text index FTS5: people remember names.

An item's words are those of its id, which for a picture are the names of its folders and its file, of its texts and of
its labels. Words are compared by their stems (Porter), without accents, and by how they begin: "beach" finds
`Beaches2019/img.jpg`. The index keeps no copy of the texts. It is made by `update`, up to the last row; a trigger
removes the words of an item with its row.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import zip_longest

from kenthash.search.engine import Metadata, texts_of
from kenthash.search.local.schema import damaged
from kenthash.search.local.sqlite import sqlite3
from kenthash.search.local.store import Store

LAST_ROW = "words row"  # in the table `about`: the last row whose words are in
NEEDED = (3, 43, 0)  # the first SQLite whose full-text indexes without contents can forget rows
MOST = 32  # words of a query
ROWS = 1000  # per statement
WORDS = "fts5(body, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2')"
TABLES = (
    f"CREATE VIRTUAL TABLE words USING {WORDS}",
    """
    CREATE TRIGGER words_of_removed AFTER DELETE ON items BEGIN
        DELETE FROM words WHERE rowid = OLD.row;
    END
    """,
)


def words_of(id: str, metadata: Metadata) -> str:
    labels = metadata.get("labels")
    return " ".join([id, *texts_of(metadata), *(labels if isinstance(labels, list) else ())])


def exists(store: Store) -> bool:
    return bool(store.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchall())


def update(store: Store, most: int | None = None, rebuild: bool = False) -> None:
    """Add the words of the items that have come since the last time. With `most`, only where the index has words and no
    more new items than that; with `rebuild`, those of all items, whatever the index of words holds."""
    if sqlite3.sqlite_version_info < NEEDED or (most is not None and not exists(store)):
        return
    with store.writing() as connection:
        if rebuild:
            connection.execute("DROP TRIGGER IF EXISTS words_of_removed")
            connection.execute("DROP TABLE IF EXISTS words")
            connection.execute("DELETE FROM about WHERE key = ?", (LAST_ROW,))
        last = _last_row(store)
        if most is not None:
            count_new = "SELECT count(*) FROM (SELECT 1 FROM items WHERE row > ? LIMIT ?)"
            if connection.execute(count_new, (last, most + 1)).fetchone()[0] > most:
                return
        if not exists(store):
            for statement in TABLES:
                connection.execute(statement)
        _insert(store, "words", last, store.mark().row)
        connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (LAST_ROW, store.mark().row))


def faults(store: Store) -> Iterator[str]:
    """How the index of words differs from a new one of the same items: each place of each word is compared."""
    connection, last = store.connection, _last_row(store)
    if last > store.mark().row:
        yield f"words up to row {last}, beyond the last row, {store.mark().row}"
    with ExitStack() as ended:

        def create(table: str, module: str) -> None:
            connection.execute(f"CREATE VIRTUAL TABLE temp.{table} USING {module}")
            ended.callback(connection.execute, f"DROP TABLE temp.{table}")

        create("new_words", WORDS)
        _insert(store, "temp.new_words", 0, last)
        create("places", "fts5vocab(main, words, instance)")
        create("new_places", "fts5vocab(temp, new_words, instance)")
        stored_words, expected_words = (
            ended.enter_context(closing(connection.execute(f"SELECT term, doc, offset FROM temp.{table}")))
            for table in ("places", "new_places")
        )
        for place, expected in zip_longest(stored_words, expected_words):
            if place != expected:  # both are in order, so that the first of the two is the one that the other lacks
                odd = min(filter(None, (place, expected)))
                yield f"row {odd[1]}: the word {odd[0][:60]!r} is {'missing' if odd == expected else 'too much'}"
                return


def _last_row(store: Store) -> int:
    last = store.about(LAST_ROW) or 0
    if not isinstance(last, int):
        raise damaged(store.path, f"{LAST_ROW} is {str(last)[:20]!r}")
    return last


def _insert(store: Store, table: str, after: int, last: int) -> None:
    rows = store.connection.execute(
        "SELECT row, id, metadata, code FROM items WHERE row > ? AND row <= ? ORDER BY row", (after, last)
    )
    while part := rows.fetchmany(ROWS):
        store.checked_codes(part)
        entries = store.parse_metadata([entry for _, _, entry, _ in part])
        store.connection.executemany(
            f"INSERT INTO {table}(rowid, body) VALUES (?, ?)",
            [(row, words_of(id, entry)) for (row, id, *_), entry in zip(part, entries, strict=True)],
        )


def matching(store: Store, text: str, limit: int) -> list[str]:
    """Up to `limit` ids of items that have all words of a text, in the order in which they were added."""
    words = re.findall(r"[^\W_]+", text)[:MOST]
    if not words or sqlite3.sqlite_version_info < NEEDED or not exists(store):
        return []
    query = " ".join(f'"{word}"*' for word in words)
    which = "WHERE row IN (SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid LIMIT ?)"
    return list(store.checked_ids(store.connection, which, (query, limit)).values())
