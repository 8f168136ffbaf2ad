"""The connections of a local index: few, whatever the number of threads, and closed when the last call has ended."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kenthash.cli import app
from kenthash.errors import DataError, UsageError
from kenthash.search import Index
from kenthash.search.local.local_engine import IDLE, LocalEngine
from kenthash.search.local.schema import READ_CACHE_KIB
from kenthash.search.local.sqlite import sqlite3

CODES = np.random.default_rng(0).integers(0, 256, (50, 8), np.uint8)
IDS = [f"{i:02}" for i in range(50)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.kh"
    with Index.create(path, 64) as index:
        index.add(IDS, CODES)
    return path


def descriptors(path: Path) -> int:
    """The number of descriptors that this process has of the files of an index."""
    files = [(file.stat().st_dev, file.stat().st_ino) for file in path.parent.glob(f"{path.name}*")]
    count = 0
    for name in os.listdir("/dev/fd"):  # noqa: PTH208
        try:
            status = os.fstat(int(name))
        except OSError:  # that of the listing
            continue
        count += (status.st_dev, status.st_ino) in files
    return count


def test_threads_that_have_ended_leave_nothing_behind(path: Path) -> None:
    with Index.open(path) as index:
        index.search(CODES[:1])
        before = descriptors(path)
        for i in range(30):
            thread = threading.Thread(target=lambda i=i: index.search(CODES[i : i + 1]))
            thread.start()
            thread.join()
        assert 0 < before == descriptors(path)
    assert descriptors(path) == 0


def test_calls_at_once_have_a_connection_each_and_few_are_kept(path: Path) -> None:
    engine, calls = LocalEngine.open(path), 3 * IDLE
    together = threading.Barrier(calls)

    def call(_: int) -> int:
        with engine.connections.connection() as store:
            together.wait()
            return store.count()

    for _ in range(3):
        with ThreadPoolExecutor(calls) as pool:
            assert list(pool.map(call, range(calls))) == [50] * calls
        # The log of each connection that is kept, the index of the logs, and the file once for each call: SQLite reuses
        # its descriptors, and closes them with the last connection.
        assert descriptors(path) == IDLE + 1 + calls
    engine.close()
    assert descriptors(path) == 0


def test_a_call_under_way_ends_well_though_the_index_is_closed(path: Path) -> None:
    engine = LocalEngine.open(path)
    with engine.connections.connection() as store:
        engine.close()
        store.set_note("late", "but whole")
        with pytest.raises(UsageError, match=r"x\.kh: the index is closed"):
            engine.notes()
    assert descriptors(path) == 0
    with Index.open(path) as index:
        assert index.notes() == {"late": "but whole"}


def test_another_index_under_the_same_name_is_not_read(path: Path, tmp_path: Path) -> None:
    Index.create(tmp_path / "y.kh", 64).close()
    engine = LocalEngine.open(path)
    with engine.connections.connection() as store:
        (tmp_path / "y.kh").replace(path)
        with pytest.raises(DataError, match=r"x\.kh: another index has taken the place"):
            engine.list_ids("", 10)  # by a second connection, as the first one is in use
        assert store.count() == 50
    engine.close()


def test_connections_take_little_memory(tmp_path: Path) -> None:
    """Each has a page cache, which is large only while it writes."""
    with Index.create(tmp_path / "large.kh", 64) as index:
        ids = [f"{i:05}" for i in range(20_000)]
        index.add(ids, np.resize(CODES, (20_000, 8)), [{"text": "x" * 2000}] * 20_000)
    assert (size := (tmp_path / "large.kh").stat().st_size) > 30 << 20
    engine, before = LocalEngine.open(tmp_path / "large.kh"), resident()
    with ExitStack() as stack:
        for _ in range(IDLE):
            store = stack.enter_context(engine.connections.connection())
            store.connection.execute("SELECT sum(length(metadata)) FROM items").fetchone()
        assert resident() - before < IDLE * (READ_CACHE_KIB << 10) * 1.2 < IDLE * size
    engine.close()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_old_sqlite_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where pysqlite3 was built from source, with what the system has."""
    Index.create(tmp_path / "x.kh", 64).close()
    command = ["index", "stats", "--index", str(tmp_path / "x.kh")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0 and sqlite3.sqlite_version in result.stdout and not result.stderr
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.40.1")
    result = CliRunner().invoke(app, [*command, "--json"])
    assert json.loads(result.stdout)["details"]["SQLite"] == "3.40.1"
    assert result.stderr.startswith("warning: SQLite 3.40.1 can lose changes") and result.stderr.count("\n") == 1
