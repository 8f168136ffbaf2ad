"""`verify` finds every kind of damage, `--repair` mends what the items tell, and neither disturbs a healthy index."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from damage import answers, code_file, make

from kenthash.errors import UsageError
from kenthash.search import Index
from kenthash.search.local import mih
from kenthash.search.local.codefile import PAGE
from kenthash.search.local.maintenance import verify_index
from kenthash.search.local.sqlite import sqlite3


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with texts and tables, and with items removed from the code files and outside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mih, "MIN_ITEMS", 1000)
        patch.setattr(mih, "SAMPLE", 500)
        make(folder := tmp_path_factory.mktemp("original"), "fast", 64)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    for file in original.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def sql(folder: Path, *statements: str) -> None:
    with sqlite3.connect(folder / "x.kh") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def write(file: Path, place: int, content: bytes) -> None:
    with file.open("r+b") as stream:
        stream.seek(place)
        stream.write(content)


def swap_codes(folder: Path) -> None:
    """Two codes of the store change places: each fits an item, but not its own."""
    sql(
        folder,
        "CREATE TABLE two AS SELECT row, code FROM items WHERE row IN (500, 501)",
        "UPDATE items SET code = (SELECT code FROM two WHERE two.row = 1001 - items.row) WHERE row IN (500, 501)",
        "DROP TABLE two",
    )


LONGEST = "(SELECT id FROM words_data ORDER BY length(block) DESC)"
CUT_WORDS = f"UPDATE words_data SET block = substr(block, 1, 20) WHERE id = {LONGEST}"
NO_WORDS, NEW_WORDS = "DELETE FROM words WHERE rowid = 990", "INSERT INTO words(rowid, body) VALUES (990, 'number')"
TOO_MANY_WORDS = "UPDATE about SET value = 99999 WHERE key = 'words row'"
CUT_ORDER = "UPDATE id_order SET rows = substr(rows, 6) WHERE first = ''"
DAMAGE: dict[str, tuple[str, Callable[[Path], object], bool]] = {  # what it is found in, how it is done, repairable
    "a bit of a code": ("code file", lambda f: write(code_file(f, "items"), PAGE + 999, b"\x5a"), True),
    "a code file cut short": ("code file", lambda f: write_cut(code_file(f, "items")), True),
    "a code file gone": ("code file", lambda f: code_file(f, "items").unlink(), True),
    "a code file of texts gone": ("code file of texts", lambda f: code_file(f, "texts").unlink(), True),
    "codes of the store swapped": ("items", swap_codes, False),
    "an id missing in the order": ("order of ids", lambda f: sql(f, CUT_ORDER), True),
    "a text without an item": ("texts", lambda f: sql(f, "UPDATE texts SET item = 99999 WHERE row = 700"), True),
    "a text too many": ("texts", lambda f: sql(f, "INSERT INTO texts(item, number, code) VALUES (50, 1, x'00')"), True),
    "a code too short": ("items", lambda f: sql(f, "UPDATE items SET code = x'00' WHERE row = 990"), False),
    "metadata that are no JSON": ("items", lambda f: sql(f, "UPDATE items SET metadata = '{' WHERE row = 900"), False),
    "a row both there and removed": ("items", lambda f: sql(f, "INSERT INTO removed(row) VALUES (500)"), False),
    "a removal that is no row": ("items", lambda f: sql(f, "INSERT INTO removed(row) VALUES ('x')"), False),
    "a note that is no text": ("notes", lambda f: sql(f, "INSERT INTO notes VALUES ('key', x'00')"), False),
    "an item without its words": ("words", lambda f: sql(f, NO_WORDS), True),
    "words of another item": (
        "words",
        lambda f: sql(
            f, "DELETE FROM words WHERE rowid = 990", "INSERT INTO words(rowid, body) VALUES (990, 'number')"
        ),
        True,
    ),
    "words without an item": ("words", lambda f: sql(f, "INSERT INTO words(rowid, body) VALUES (99999, 'a')"), True),
    "words beyond the last row": (
        "words",
        lambda f: sql(f, "UPDATE about SET value = 99999 WHERE key = 'words row'"),
        True,
    ),
    "words cut short": ("SQLite file", lambda f: sql(f, CUT_WORDS), True),
    "an id with a line end": ("items", lambda f: sql(f, "UPDATE items SET id = 'a' || char(10) WHERE row = 50"), False),
}


def write_cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5000])


def test_a_healthy_index_is_healthy_and_stays_as_it_is(folder: Path) -> None:
    right, before = answers(folder / "x.kh"), (folder / "x.kh").read_bytes()
    for repair in (False, True):
        report = verify_index(folder / "x.kh", repair)
        assert report.healthy and not report.repaired and report.code_files == 2 and report.items == 2970, report
        assert report.texts == report.items
    assert (folder / "x.kh").read_bytes() == before
    assert answers(folder / "x.kh") == right


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_mended_where_it_can_be(folder: Path, kind: str) -> None:
    part, harm, repairable = DAMAGE[kind]
    harm(folder)
    report = verify_index(folder / "x.kh")
    assert list(report.faults) == [part] and report.faults[part][0], report
    after = verify_index(folder / "x.kh", repair=True)
    assert after.healthy == repairable
    if repairable:
        assert part in after.repaired and verify_index(folder / "x.kh").healthy
        with Index.open(folder / "x.kh") as index:
            query = np.load(folder / "queries.npy")[:1]
            assert len(index.search(query, 3000)[0]) == 2970
            assert len(index.match_words("number", 3000)) == 2970 and index.match_words("é0990") == ["é0990"]


def test_tables_that_are_wrong_from_the_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With checksums that fit them, as of a program that makes them wrongly."""
    monkeypatch.setattr(mih, "MIN_ITEMS", 1000)
    right = mih.fill_tables

    def wrong(tables: mih.Tables, codes: np.ndarray, threads: int) -> None:
        right(tables, codes, threads)
        tables.low[0, :2] = tables.low[0, 1::-1]

    with monkeypatch.context() as patch, Index.open(folder / "x.kh") as index:
        patch.setattr(mih, "fill_tables", wrong)
        index.compact()
    report = verify_index(folder / "x.kh")
    assert "its tables are not those of its codes" in report.faults["code file"][0]
    assert verify_index(folder / "x.kh", repair=True).healthy


def test_a_damaged_page_is_found_and_left(folder: Path) -> None:
    place = (folder / "x.kh").read_bytes().index(b"number 1500") // 16384 * 16384
    write(folder / "x.kh", place, b"\xff" * 100)
    for repair in (False, True):
        report = verify_index(folder / "x.kh", repair)
        assert list(report.faults) == ["SQLite file"] and not report.repaired
        assert "malformed" in report.faults["SQLite file"][0]


def test_an_index_of_sqlites_is_made_again(tmp_path: Path) -> None:
    """As files of earlier versions have one: an entry is changed, so that an id is not found any more."""
    shutil.unpack_archive(Path(__file__).with_name("index-0.1.0.zip"), tmp_path)
    path = tmp_path / "old.kh"
    Index.open(path).close()  # which brings it up to this version's schema
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name LIKE '%autoindex_items%'"
        ).fetchone()
    content, name = path.read_bytes(), "é150".encode()
    places = [match.start() for match in re.finditer(name, content)]
    (place,) = (place for place in places if place // 16384 == root - 1)
    write(path, place, "é15x".encode())
    report = verify_index(path)
    assert "missing from index" in report.faults["SQLite file"][0]
    report = verify_index(path, repair=True)
    assert report.healthy and report.items == 280 and "SQLite file" in report.repaired


def test_the_command(folder: Path) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kenthash", "index", "verify", "--index", str(folder / "x.kh"), *options]
        return subprocess.run(command, capture_output=True, text=True)

    code_file(folder, "items").unlink()
    result = run()
    assert result.returncode == 1 and result.stdout.startswith("damaged: 2,970 items") and "--repair" in result.stderr
    result = run("--repair", "--json")
    assert (
        result.returncode == 0
        and json.loads(result.stdout)["healthy"]
        and "code file" in json.loads(result.stdout)["repaired"]
    )
    with pytest.raises(UsageError, match="only an index in a file"):
        verify_index("postgresql://user:secret@host/db")
