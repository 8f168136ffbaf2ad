"""The code file rebuilt: by several at once, beside another index, on a full disk, and its size."""

import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from kenthash.codes import Codes
from kenthash.errors import KenthashError
from kenthash.search import Index
from kenthash.search.local import codefile, mih
from kenthash.search.local.codefile import Header
from kenthash.search.local.local_engine import LocalEngine
from kenthash.search.local.sqlite import sqlite3


def codes_of(items: int) -> Codes:
    return np.random.default_rng(0).integers(0, 256, (items, 8), np.uint8)


def filled(path: Path, items: int) -> Path:
    with Index.create(path, 64) as index:
        index.add([f"{i:06}" for i in range(items)], codes_of(items))
    return path


def test_a_code_file_that_another_makes_meanwhile_stays(tmp_path: Path) -> None:
    """As soon as one has committed, another may write its own: here at the very moment."""
    another = tmp_path / "x.kh.0123456789ab.codes"
    with closing(LocalEngine.open(filled(tmp_path / "x.kh", 200))) as engine:
        with engine.connections.connection() as store:  # which is the one that the next call takes
            connection = store.connection
        connection.set_trace_callback(lambda sql: another.touch() if sql == "COMMIT" else None)
        engine.compact()
        connection.set_trace_callback(None)
        assert another.exists() and engine.stats().details["in the code file"] == 200
        engine.compact()
        assert not another.exists()  # the store never named it: it is a leftover by now
    assert len(list(tmp_path.glob("*.codes*"))) == 1


def test_an_index_with_a_longer_name_keeps_its_code_file(tmp_path: Path) -> None:
    for name in ("x.kh.old", "x.kh"):
        with Index.open(filled(tmp_path / name, 50)) as index:
            index.compact()
    with Index.open(tmp_path / "x.kh.old") as index:
        assert index.stats().details["in the code file"] == 50


def test_searches_at_once_make_the_code_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codefile, "MAX_FRESH", 100)
    path = filled(tmp_path / "x.kh", 20_000)
    with sqlite3.connect(path) as counter:  # what SQLite itself saw being named
        counter.execute("CREATE TABLE named(stamp)")
        counter.execute(
            "CREATE TRIGGER count_them AFTER INSERT ON about WHEN new.key = 'codes' "
            "BEGIN INSERT INTO named VALUES (new.value); END"
        )
    counter.close()
    together = threading.Barrier(6)
    with Index.open(path) as index, ThreadPoolExecutor(6) as pool:

        def search(query: int) -> list[str]:
            together.wait()
            return index.search(codes_of(6)[query : query + 1], 1)[0].ids

        assert list(pool.map(search, range(6))) == [[f"{i:06}"] for i in range(6)]
    with sqlite3.connect(path) as counter:
        assert counter.execute("SELECT count(*) FROM named").fetchone() == (1,)
    counter.close()


def test_searches_go_on_while_the_code_file_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an index is being searched, a code file that falls behind is rebuilt by another thread: here one that waits
    for the writer's lock, which a search would wait for as well if it rebuilt the file itself."""
    monkeypatch.setattr(codefile, "MAX_FRESH", 100)
    path, codes = filled(tmp_path / "x.kh", 300), codes_of(700)
    with Index.open(path) as index:
        index.search(codes[:1], 1)  # the first one makes the file
        assert index.stats().details["in the code file"] == 300
        index.add([f"{i:06}" for i in range(300, 450)], codes[300:450])
        index.upsert(["000007"], codes[600:601])
        with sqlite3.connect(path, isolation_level=None) as writer:
            writer.execute("BEGIN IMMEDIATE")
            for i in (5, 310, 449):
                assert index.search(codes[i : i + 1], 1)[0].ids == [f"{i:06}"]
            assert index.search(codes[600:601], 1)[0].ids == ["000007"]
            assert index.stats().details["in the code file"] == 300
            writer.execute("ROLLBACK")
        writer.close()
        for thread in threading.enumerate():
            if thread.name == "kenthash rebuild":
                thread.join()
        assert index.stats().details["in the code file"] == 450
        for i in (5, 310, 449):
            assert index.search(codes[i : i + 1], 1)[0].ids == [f"{i:06}"]
        assert index.search(codes[600:601], 1)[0].ids == ["000007"]
        index.add(["late"], codes[650:651])
        assert index.search(codes[650:651], 1)[0].ids == ["late"]
        index.add([f"{i:06}" for i in range(1000, 2000)], ~codes_of(1000))  # very many: the search waits
        assert index.search(codes[650:651], 1)[0].ids == ["late"]
        assert index.stats().details["in the code file"] == 1451


def test_a_full_disk_is_one_line_and_searches_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codefile, "MAX_FRESH", 100)
    path = filled(tmp_path / "x.kh", 30_000)  # whose code file takes 364,544 bytes
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Index.open(path) as index:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
        try:
            with pytest.raises(KenthashError, match=r"^[^\n]*x\.kh\.[0-9a-f]+\.codes: cannot be written: [^\n]+$"):
                index.compact()
            assert index.search(codes_of(2)[1:], 1)[0].ids == ["000001"]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.glob("*.codes*"))


@pytest.mark.parametrize(
    ("items", "form", "bytes_per_item"),
    [
        (1 << 24, "scan", 12),
        (1 << 24, "compact", 24),
        (1 << 24, "fast", 56),
        ((1 << 24) + 4096, "scan", 12),
        ((1 << 24) + 4096, "compact", 28),
        ((1 << 24) + 4096, "fast", 60),
    ],
)
def test_bytes_per_item_by_hand(items: int, form: str, bytes_per_item: int) -> None:
    """8 of code and 4 of row; 4 tables of 3 bytes, or of 4 beyond 2^24 items; 4 copies of 8. All items together fill
    whole pages here; besides them stand the header's page and 4 (2^16 + 1) offsets of 4 bytes, in 257 pages. All
    pages but the header's have a checksum of 8 bytes."""
    cuts = [] if form == "scan" else mih.substring_cuts(64, items).tolist()
    end = Header(items, 0, items, 64, items, 4, cuts, form == "fast").layout()["end"][0]
    pages = items * bytes_per_item // 4096 + (0 if form == "scan" else 257)
    assert end == 4096 + (4096 + 8) * pages
