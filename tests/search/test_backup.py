"""A backup is a state that the index had, whoever writes meanwhile, and is restored by copying."""

import multiprocessing
import shutil
import subprocess
import sys
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from kenthash.codes import Codes
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.search import Index, add_texts
from kenthash.search.local.local_engine import LocalEngine
from kenthash.search.local.maintenance import backup_index, verify_index

GROUP = 10  # items that are always changed together


def write_for_ever(path: Path, writer: int, begun: Event, stop: Event) -> None:
    """Every change replaces a group of items by those of the next turn; now and then the index is compacted."""
    with Index.open(path) as index:
        turn = 0
        while not stop.is_set():
            ids = [f"{writer}-{turn % 3}-{i}" for i in range(GROUP)]
            index.upsert(ids, np.full((GROUP, 4), turn % 256, np.uint8), [{"turn": turn}] * GROUP)
            if turn % 7 == 3:
                index.remove([f"{writer}-{(turn + 1) % 3}-{i}" for i in range(GROUP)])
            if turn % 20 == 10:
                index.compact()
            turn += 1
            if turn == 5:
                begun.set()


def test_backups_under_load(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    path, stop, begun = tmp_path / "x.kh", context.Event(), [context.Event() for _ in range(2)]
    with Index.create(path, 32) as index:
        index.add([f"old {i}" for i in range(3000)], np.zeros((3000, 4), np.uint8))
    writers = [context.Process(target=write_for_ever, args=(path, n, begun[n], stop)) for n in range(2)]
    for writer in writers:
        writer.start()
    try:
        assert all(event.wait(600) for event in begun)
        with Index.open(path) as index:
            for number in range(8):
                index.upsert([f"acknowledged {number}"], np.zeros((1, 4), np.uint8))
                copy = tmp_path / f"{number}.kh"
                items = backup_index(path, copy)
                assert verify_index(copy).healthy
                with Index.open(copy) as opened:
                    check_state(opened, items, number)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert verify_index(path).healthy


def check_state(index: Index, items: int, number: int) -> None:
    ids = index.list_ids(limit=10_000)
    assert len(ids) == items == index.stats().items
    assert {f"acknowledged {i}" for i in range(number + 1)} <= set(ids)
    groups: dict[str, set[object]] = {}
    for item in index.get([name for name in ids if name.count("-") == 2]):
        assert item is not None
        groups.setdefault(item.id.rpartition("-")[0], set()).add(item.metadata["turn"])
    assert all(len(turns) == 1 for turns in groups.values())  # no group is from two turns
    assert sum(name.count("-") == 2 for name in ids) == GROUP * len(groups)  # nor half there
    assert len(index.search(np.zeros((1, 4), np.uint8), 10_000)[0]) == items


def test_a_backup_is_restored_by_copying(tmp_path: Path) -> None:
    path, copy = tmp_path / "x.kh", tmp_path / "backups" / "x.kh"
    codes = np.random.default_rng(0).integers(0, 256, (100, 4), np.uint8)
    with Index.create(path, 32) as index:
        index.add([f"{i}" for i in range(100)], codes, [{"text": f"number {i}"} for i in range(100)])
        add_texts(index, lambda texts: codes[: len(texts)])
        index.note("model", "m")
        index.compact()
        right = hit_ids(index, codes)
        command = [sys.executable, "-m", "kenthash", "index", "backup", "--index", str(path), "--out", str(copy)]
        completed = subprocess.run(command, capture_output=True, text=True)
        assert (completed.returncode, completed.stdout) == (0, f"{copy}: 100 items\n")
        assert [file.name for file in copy.parent.iterdir()] == ["x.kh"]
        index.remove([f"{i}" for i in range(50)])
        for file in tmp_path.glob("x.kh*"):
            file.unlink()
        with pytest.raises(DataError, match=r"x\.kh: the file of this index is gone"):
            index.upsert(["lost"], codes[:1])
        shutil.copy(copy, path)
        with pytest.raises(DataError, match="another index has taken the place"):
            index.upsert(["lost"], codes[:1])  # by a connection to the file that is no longer there
        engine = cast(LocalEngine, index.engine)
        with engine.connections.connection(), pytest.raises(DataError, match="another index has taken the place"):
            index.list_ids()  # by a new connection, since the other one is in use
    with Index.open(path) as restored:
        assert restored.notes() == {"model": "m", "texts": "complete"}
        assert hit_ids(restored, codes) == right
        restored.compact()
    assert verify_index(path).healthy


def hit_ids(index: Index, codes: Codes) -> list[list[str]]:
    return [hits.ids for search in (index.search, index.search_texts) for hits in search(codes[:5], 100)]


def test_what_cannot_be_copied(tmp_path: Path) -> None:
    path = tmp_path / "x.kh"
    Index.create(path, 32).close()
    with pytest.raises(UsageError, match=r"x\.kh: exists already"):
        backup_index(path, path)
    (tmp_path / "y.kh-wal").touch()  # SQLite would take it for the copy's own
    with pytest.raises(UsageError, match=r"y\.kh-wal: exists already"):
        backup_index(path, tmp_path / "y.kh")
    with pytest.raises(KenthashError, match="cannot be written"):
        backup_index(path, path / "below" / "y.kh")
    with pytest.raises(UsageError, match="only an index in a file"):
        backup_index("milvus://127.0.0.1:1/x", tmp_path / "z.kh")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.kh", "y.kh-wal"]
