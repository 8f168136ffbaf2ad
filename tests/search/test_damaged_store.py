"""A damaged SQLite file of an index: one line that names it, whatever is wrong with it, in every call."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from damage import FOUND_BY_VERIFY

from kenthash.errors import DataError
from kenthash.search import Index, add_texts
from kenthash.search.local.maintenance import backup_index, verify_index
from kenthash.search.local.sqlite import sqlite3

MUTATIONS = 40  # of the many that `python tests/search/damage.py store 0 1000` tries
LATE = "late"  # an item that is not in the code file
CODES = np.random.default_rng(0).integers(0, 256, (300, 8), np.uint8)


def test_mutations_are_refused_or_harmless() -> None:
    """What SQLite looks through by itself has checksums that only `verify` compares: metadata that a filter passes
    over, and the index of words."""
    command = [sys.executable, str(Path(__file__).with_name("damage.py")), "store", "0", str(MUTATIONS)]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(completed.stdout)["counts"].keys() <= {"right", "refused", FOUND_BY_VERIFY}, completed.stdout
    assert json.loads(completed.stdout)["counts"]["refused"] > MUTATIONS // 2


def test_a_schema_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """SQLite's message about it has the bytes in it, which Python cannot decode."""
    path = tmp_path / "x.kh"
    Index.create(path, 64).close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE notes(", b"CREATE TABLE\xffnotes(", 1))
    with pytest.raises(DataError, match=r"^[^\n]*x\.kh: damaged: [^\n]+$"):
        Index.open(path)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE items SET metadata = '{\"n\": '",
        "UPDATE items SET metadata = '[1]'",
        "UPDATE items SET metadata = '{},{}'",
        "UPDATE items SET metadata = x'ff00'",
        "UPDATE items SET code = x'00'",
        "UPDATE items SET code = 'text'",
        "UPDATE items SET id = CAST(row AS BLOB) WHERE row > 290",
        "UPDATE items SET id = CAST(x'ff' || id AS TEXT) WHERE row > 290",
        "UPDATE items SET row = row + 1000000 WHERE row > 290",
        "UPDATE items SET row = -row WHERE row > 290",
        "UPDATE sqlite_sequence SET seq = 'x' WHERE name = 'items'",
        "UPDATE sqlite_sequence SET seq = 1",
        "INSERT INTO removed(row) VALUES ('x')",
        "DELETE FROM items WHERE row = 7",
        "DROP TABLE items",
        "DROP TABLE removed",
        "DELETE FROM id_order",
        "UPDATE id_order SET rows = substr(rows, 2)",
        "UPDATE id_order SET rows = substr(rows, 6)",
        "UPDATE id_order SET rows = CAST(substr(rows, 6, 5) || substr(rows, 1, 5) || substr(rows, 11) AS BLOB)",
        "UPDATE id_order SET rows = CAST(substr(rows, 1, 5) || substr(rows, 1, 5) || substr(rows, 11) AS BLOB)",
        "UPDATE items SET id = id || char(0) || '0' WHERE row > 290",
        "UPDATE about SET value = 'x' WHERE key = 'words row'",
        "DELETE FROM about WHERE key = 'bits'",
        "UPDATE about SET value = 'x' WHERE key = 'bits'",
        "UPDATE about SET value = 63 WHERE key = 'bits'",
        "UPDATE about SET value = 'none' WHERE key = 'form'",
        "UPDATE about SET value = 'a/../b' WHERE key = 'codes'",
        "PRAGMA user_version = 0",
    ],
)
def test_what_kenthash_does_not_write_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.kh"
    with Index.create(path, 64) as index:
        index.add([f"{i:03}" for i in range(300)], CODES, [{"n": i, "text": f"number {i}"} for i in range(300)])
        add_texts(index, lambda texts: CODES[: len(texts)])
        index.update_words()
        index.compact()
        index.remove(["003"])
        index.upsert(["005"], CODES[5:6], [{"n": 5}])
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    connection.close()

    def ask() -> None:
        with Index.open(path) as index:
            index.search(CODES[:3], 299, filter="n >= 0")
            index.search_texts(CODES[:3], 299)
            index.get(index.list_ids())
            index.update_words()
            index.compact()
            index.search(CODES[:3], 299)

    with pytest.raises(DataError, match=r"^[^\n]*x\.kh: [^\n]+$"):
        ask()


def test_a_changed_letter_is_noticed(tmp_path: Path) -> None:
    """Every value in these is one that kenthash could have written: only a checksum tells it from the right one."""
    changes: dict[str, tuple[str, Callable[[Index], object]]] = {
        "an id": ("UPDATE items SET id = 'é7x' WHERE id = 'é77'", lambda index: index.search(CODES[77:78], 1)),
        "a list of ids": ("UPDATE items SET id = 'é7x' WHERE id = 'é77'", lambda index: index.list_ids()),
        "a number": ("UPDATE items SET metadata = replace(metadata, '77', '78')", lambda index: index.get(["é77"])),
        "a text": ("UPDATE items SET metadata = replace(metadata, 'b', 'p')", lambda index: index.search(CODES[77:78])),
        "a name found by its words": (
            "UPDATE items SET id = 'é7x' WHERE id = 'é77'",
            lambda index: index.match_words("number 77"),
        ),
        "a code that was not compacted": (
            f"UPDATE items SET code = CAST(x'00' || substr(code, 2) AS BLOB) WHERE id = '{LATE}'",
            lambda index: index.search(CODES[:1], 1),
        ),
        "a code of a text": (
            "UPDATE texts SET code = CAST(x'00' || substr(code, 2) AS BLOB) WHERE row = 301",
            lambda index: index.search_texts(CODES[:1], 1),
        ),
        "the item of a text": (
            "UPDATE texts SET item = 5000 - item WHERE item = 77; UPDATE texts SET item = 77 WHERE item = 78",
            lambda index: index.search_texts(CODES[78:79], 1),
        ),
        "a removal": (
            "UPDATE removed SET row = (SELECT row FROM items WHERE id = 'é77')",
            lambda index: index.search(CODES[77:78], 1),
        ),
        "a note": ("UPDATE notes SET value = 'n'", lambda index: index.notes()),
        "the order of ids": (
            "UPDATE id_order SET rows = CAST(substr(rows, 1, 5) || x'05' || substr(rows, 7) AS BLOB) WHERE first = ''",
            lambda index: index.get(["é02"]),
        ),
    }
    right = tmp_path / "right.kh"
    with Index.create(right, 64) as index:
        names = [f"é{i:02}" for i in range(300)]
        index.add(names, CODES, [{"n": i, "text": f"number {i}"} for i in range(300)])
        add_texts(index, lambda texts: CODES[: len(texts)])
        index.update_words()
        index.compact()
        index.remove(["é09"])
        index.add([LATE], 255 - CODES[:1], [{"text": "late"}])
        add_texts(index, lambda texts: 255 - CODES[: len(texts)])
        index.note("model", "m")
    for what, (statements, ask) in changes.items():
        path = tmp_path / f"{what}.kh"
        backup_index(right, path)
        with Index.open(path) as index:
            ask(index)
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(statements)
        assert not verify_index(path).healthy, what
        with Index.open(path) as index, pytest.raises(DataError, match=r"^[^\n]*\.kh: damaged: [^\n]+$"):
            print(what, ask(index))
