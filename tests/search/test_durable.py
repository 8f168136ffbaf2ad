"""What was acknowledged stays, whatever happens: kills, damaged files, old files, readers beside a writer."""

import multiprocessing
import os
import random
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from kenthash.codes import Codes, hamming
from kenthash.errors import DataError, UsageError
from kenthash.search import Index
from kenthash.search.local.schema import APPLICATION, MIGRATIONS
from kenthash.search.local.sqlite import sqlite3
from kenthash.search.queries import real_valued

KILLS = 50 * int(os.environ.get("KENTHASH_TORTURE", "1"))  # `make torture` sets it
Content = dict[str, bytes]


def plan(seed: int) -> tuple[str, list[str], Codes]:
    """One change: what to do, with which ids and codes."""
    rng = random.Random(seed)
    what = rng.choice(["upsert", "upsert", "upsert", "remove", "compact"])
    ids = [f"item {n}" for n in sorted(rng.sample(range(60), rng.randint(1, 20)))]
    return what, ids, np.random.default_rng(seed).integers(0, 256, (len(ids), 4), np.uint8)


def carry_out(content: Content, what: str, ids: list[str], codes: Codes) -> Content:
    if what == "upsert":
        return content | {name: code.tobytes() for name, code in zip(ids, codes, strict=True)}
    return {name: code for name, code in content.items() if what == "compact" or name not in ids}


def write_for_ever(path: Path, seed: int, pipe: Connection) -> None:
    with Index.open(path) as index:
        while True:
            what, ids, codes = plan(seed)
            if what == "upsert":
                index.upsert(ids, codes)
            elif what == "remove":
                index.remove(ids)
            else:
                index.compact()
            pipe.send(seed)  # acknowledged
            seed += 1


def content_of(index: Index) -> Content:
    return {item.id: item.code.tobytes() for item in index.get(index.list_ids()) if item is not None}


def test_kills_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")  # children start from a process that has imported it all
    context.set_forkserver_preload(["kenthash.search.local.local_engine"])
    path, rng = tmp_path / "x.kh", random.Random(0)
    Index.create(path, 16, rerank_bits=32).close()  # with two stages: all arrays that a code file can have
    content: Content = {}
    torn = acknowledged = 0
    for kill in range(KILLS):
        first = 1000 * kill
        receive, send = context.Pipe(duplex=False)
        writer = context.Process(target=write_for_ever, args=(path, first, send))
        writer.start()
        send.close()
        last = first - 1
        for _ in range(rng.randint(1, 4)):
            last = receive.recv()
        receive.poll(rng.uniform(0, 0.01))  # somewhere within the next change
        writer.kill()
        writer.join()
        try:
            while True:
                last = receive.recv()
        except EOFError:
            receive.close()
        acknowledged += last - first + 1
        for seed in range(first, last + 1):
            content = carry_out(content, *plan(seed))
        with Index.open(path) as index:
            actual = content_of(index)
            if actual != content:  # then the change that was under way is there, as a whole
                torn += 1
                content = carry_out(content, *plan(last + 1))
                assert actual == content
            check_search(index, content, kill)
    print(f"kills: {KILLS:,}, acknowledged changes {acknowledged:,}, kills after which the next is there {torn:,}")
    assert acknowledged >= KILLS
    assert torn < KILLS


def check_search(index: Index, content: Content, seed: int) -> None:
    """By a packed and by a real-valued query."""
    rng = np.random.default_rng(seed)
    query, outputs = rng.integers(0, 256, (1, 4), np.uint8), rng.standard_normal((1, 32))
    names = sorted(content)
    codes = np.array([np.frombuffer(content[name], np.uint8) for name in names]).reshape(-1, 4)
    distances = hamming(query, codes)[0], real_valued(outputs).distances(0, codes)
    for hits, away in zip((*index.search(query, 7), *index.search(outputs, 7)), distances, strict=True):
        best = sorted(zip(away.tolist(), names, strict=True))[:7]
        assert list(zip(hits.distances.tolist(), hits.ids, strict=True)) == best


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "x.kh"
    with Index.create(path, 32) as index:
        index.add([f"{i:03}" for i in range(500)], codes_of(500))
        index.compact()
    return path


def code_file(path: Path) -> Path:
    (file,) = path.parent.glob(f"{path.name}.*.codes")
    return file


def codes_of(items: int) -> Codes:
    return np.random.default_rng(0).integers(0, 256, (items, 4), np.uint8)


def test_foreign_and_torn_files_are_named_and_refused(filled: Path, tmp_path: Path) -> None:
    whole = filled.read_bytes()
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t(x)")
    connection.close()
    cases = {"text": b"hello" * 100, "empty": b"", "torn": whole[: len(whole) // 2], "other": other.read_bytes()}
    for name, content in cases.items():
        bad = tmp_path / f"{name}.kh"
        bad.write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}\.kh: [^\n]+$"):
            Index.open(bad)
    with pytest.raises(DataError, match=r"nowhere\.kh: there is no such index"):
        Index.open(tmp_path / "nowhere.kh")
    with pytest.raises(UsageError, match="exists already"):
        Index.create(filled, 32)


def test_damage_inside_is_an_error_not_a_wrong_answer(filled: Path) -> None:
    with filled.open("r+b") as stream:
        stream.seek(16384)
        stream.write(os.urandom(filled.stat().st_size - 16384))
    code_file(filled).unlink()
    with pytest.raises(DataError, match=r"x\.kh: "), Index.open(filled) as index:
        index.search(codes_of(1), 1)


@pytest.mark.parametrize("damage", ["gone", "cut", "garbage", "another index's"])
def test_the_code_file_is_only_a_cache(filled: Path, tmp_path: Path, damage: str) -> None:
    before = code_file(filled).read_bytes()
    with Index.open(filled) as index:
        index.remove(["000", "001"])
        index.upsert(["002"], codes_of(1))
        index.compact()
    cache = code_file(filled)
    if damage == "gone":
        cache.unlink()
    elif damage == "another index's":
        with Index.create(tmp_path / "y.kh", 32) as other:
            other.add(["y"], codes_of(1))
            other.compact()
        cache.write_bytes(code_file(tmp_path / "y.kh").read_bytes())
    else:
        cache.write_bytes({"cut": before[:5000], "garbage": os.urandom(9000)}[damage])
    with Index.open(filled) as index:
        assert index.search(codes_of(1), 1)[0].ids == ["002"]
        hits = index.search(codes_of(2)[1:], 498)[0]
    assert sorted(hits.ids) == [f"{i:03}" for i in range(2, 500)]


def test_a_store_put_back_from_a_copy_does_not_use_newer_codes(filled: Path) -> None:
    copy, other = filled.read_bytes(), codes_of(600)[500:]
    with Index.open(filled) as index:
        index.add([f"later {i}" for i in range(50)], other[:50])
        index.compact()
    filled.write_bytes(copy)
    with Index.open(filled) as index:
        index.add([f"instead {i}" for i in range(100)], other[::-1])
        hits = index.search(other[:1], 600)[0]
    assert hits.ids[0] == "instead 99"
    assert len(hits) == 600 and not any(name.startswith("later") for name in hits.ids)


def test_an_old_schema_is_brought_up_to_date_and_a_newer_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.kh"
    with sqlite3.connect(path) as connection:
        connection.executescript(MIGRATIONS[0])
        connection.execute("INSERT INTO about VALUES ('bits', 32), ('identity', 'abc'), ('form', 'fast')")
        connection.execute("INSERT INTO items(id, code, metadata) VALUES ('a', x'00000000', '{\"n\": 1}')")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with Index.open(path) as index:
        index.note("model", "m")
        assert index.notes() == {"model": "m"}
        assert index.search(np.zeros((1, 4), np.uint8))[0].metadata == [{"n": 1}]
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(DataError, match=r"old\.kh: written by a newer kenthash"):
        Index.open(path)


def test_readers_see_whole_batches_while_a_writer_works(tmp_path: Path) -> None:
    """Every batch holds ten items of one turn: a search that finds another number has seen half a batch."""
    path = tmp_path / "x.kh"
    Index.create(path, 32).close()

    def write() -> None:
        with Index.open(path) as index:
            for turn in range(40):
                ids = [f"{turn % 3}-{i}" for i in range(10)]
                index.upsert(ids, np.full((10, 4), turn, np.uint8), [{"turn": turn}] * 10)
                if turn % 10 == 5:
                    index.compact()

    def read(index: Index, writing: "Future[None]") -> set[int]:
        counts: set[int] = set()
        while not writing.done():
            for hits in index.search(np.zeros((2, 4), np.uint8), 100):
                turns = [entry["turn"] for entry in hits.metadata]
                counts |= {turns.count(turn) for turn in turns}
        return counts

    with ThreadPoolExecutor(4) as pool, Index.open(path) as index:
        writing = pool.submit(write)
        readers = [pool.submit(read, index, writing) for _ in range(3)]  # threads that share one index
        writing.result()
        assert all(reader.result() <= {10} for reader in readers)
        assert len(index.search(np.zeros((1, 4), np.uint8), 100)[0]) == 30


def test_nothing_of_a_refused_batch_is_added(filled: Path) -> None:
    with Index.open(filled) as index:
        with pytest.raises(DataError, match="'007' is in the index already"):
            index.add(["new", "007"], codes_of(2))
        assert index.get(["new"]) == [None]
        assert index.stats().items == 500


def test_another_process_that_comes_and_goes_takes_no_writes_with_it(tmp_path: Path) -> None:
    path, codes = tmp_path / "a.kh", np.zeros((1, 8), np.uint8)
    with Index.create(path, 64) as index, ThreadPoolExecutor(1) as other_thread:
        index.add(["a"], codes)
        assert other_thread.submit(index.list_ids).result() == ["a"]  # by a connection of its own
        assert _seen_elsewhere(path) == ["a"]
        index.add(["b"], codes)
        assert _seen_elsewhere(path) == ["a", "b"]


def _seen_elsewhere(path: Path) -> list[str]:
    command = "import sys; from kenthash.search import Index; print(*Index.open(sys.argv[1]).list_ids())"
    completed = subprocess.run([sys.executable, "-c", command, str(path)], capture_output=True, text=True, check=True)
    return completed.stdout.split()
