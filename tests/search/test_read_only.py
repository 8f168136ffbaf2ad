"""An index where nothing can be written: a folder without the right to, and a disk that is mounted read-only."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from kenthash.errors import DataError, KenthashError
from kenthash.search import Index
from kenthash.search.local.schema import APPLICATION, MIGRATIONS
from kenthash.search.local.sqlite import sqlite3

CODES = np.random.default_rng(0).integers(0, 256, (60, 8), np.uint8)
IDS = [f"{i:02}" for i in range(60)]
NOBODY = 65534


@pytest.fixture(scope="module", autouse=True)
def _imports(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a search imports and compiles when it is first asked may be out of reach for somebody else than root."""
    with Index.open(closed(tmp_path_factory.mktemp("first") / "x.kh")) as index:
        index.search(CODES, 60, filter="n < 8")
        index.search(CODES[:1])


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def closed(path: Path) -> Path:
    """An index with items in and outside its code file."""
    with Index.create(path, 64) as index:
        index.add(IDS[:40], CODES[:40], [{"n": i} for i in range(40)])
        index.compact()
        index.remove(IDS[:5])
        index.add(IDS[40:], CODES[40:], [{"n": i} for i in range(40, 60)])
    return path


def killed(path: Path) -> Path:
    """The same, but 20 items are in the log alone."""
    with Index.create(path, 64) as index:
        index.add(IDS[:40], CODES[:40], [{"n": i} for i in range(40)])
    script = (
        "import os, signal, sys; import numpy as np; from kenthash.search import Index\n"
        "index = Index.open(sys.argv[1]); index.remove([f'{i:02}' for i in range(5)])\n"
        "codes = np.random.default_rng(0).integers(0, 256, (60, 8), np.uint8)[40:]\n"
        "index.add([f'{i:02}' for i in range(40, 60)], codes, [{'n': i} for i in range(40, 60)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    completed = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert completed.returncode == -signal.SIGKILL and path.with_name(path.name + "-wal").stat().st_size
    return path


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Without the right to write to a folder and its files. Root has it always, so root is somebody else meanwhile."""
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        yield


def check(path: Path) -> None:
    with Index.open(path) as index:
        assert index.list_ids() == IDS[5:] and index.stats().items == 55
        for hits, name, n in zip(index.search(CODES[5:], 1), IDS[5:], range(5, 60), strict=True):
            assert hits.ids == [name] and hits.metadata == [{"n": n}]
        assert index.search(CODES[:1], 60, filter="n < 8")[0].ids != [] and index.get(["41"])[0] is not None
        for change in (
            lambda: index.remove(["41"]), lambda: index.upsert(["a"], CODES[:1]), lambda: index.note("a", "b"),
        ):  # fmt: skip
            with pytest.raises(KenthashError, match=r"^[^\n]*x\.kh: cannot be changed: [^\n]+ read-only$"):
                change()


@pytest.mark.parametrize("make", [closed, killed])
def test_search_in_a_folder_without_the_right_to_write(folder: Path, make: Callable[[Path], Path]) -> None:
    path = make(folder / "x.kh")
    with unwritable(folder):
        check(path)


def test_search_where_the_code_file_is_missing_and_cannot_be_made(folder: Path) -> None:
    path = closed(folder / "x.kh")
    for file in folder.glob("*.codes"):
        file.unlink()
    with unwritable(folder):
        check(path)


def test_a_log_that_cannot_be_read_is_one_line_not_an_old_answer(folder: Path) -> None:
    path = killed(folder / "x.kh")
    path.with_name("x.kh-shm").unlink()
    with (
        unwritable(folder),
        pytest.raises(DataError, match=r"^[^\n]*x\.kh: not closed cleanly[^\n]+x\.kh-wal[^\n]+writ[^\n]+$"),
    ):
        Index.open(path)


def test_an_old_schema_that_cannot_be_brought_up_to_date(folder: Path) -> None:
    path = folder / "x.kh"
    with sqlite3.connect(path) as connection:
        connection.executescript(MIGRATIONS[0])
        connection.execute("INSERT INTO about VALUES ('bits', 32), ('identity', 'abc'), ('form', 'fast')")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with unwritable(folder), pytest.raises(KenthashError, match=r"^[^\n]*x\.kh: [^\n]*older[^\n]*$"):
        Index.open(path)


def test_what_another_user_writes_is_seen(folder: Path) -> None:
    """The reader may not write to the folder; the owner may, and does so between two searches of the reader's."""
    if os.geteuid() != 0:
        pytest.skip("needs two users")
    path = closed(folder / "x.kh")
    with unwritable(folder), Index.open(path) as index:
        assert index.search(CODES[:1], 1, radius=0)[0].ids == []
        for ids, codes in (["new"], CODES[:1]), (["newer"], CODES[1:2]):
            os.seteuid(0)
            with Index.open(path) as owner:
                owner.add(ids, codes)
            os.seteuid(NOBODY)
            assert index.search(codes, 1)[0].ids == ids


def on_read_only_disk(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command for which a folder is a disk mounted read-only; skip where this user may not mount."""
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && ! touch "$0"/x 2> /dev/null && exec "$@"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(folder)]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    return subprocess.run([*unshare, *command], capture_output=True, text=True, check=False)


def test_search_and_stats_on_a_read_only_disk(tmp_path: Path) -> None:
    path = closed(tmp_path / "x.kh")
    kenthash = [sys.executable, "-c", "from kenthash.cli import main; main()"]
    completed = on_read_only_disk(
        tmp_path, *kenthash, "search", "--like", "41", "-k", "3", "--index", str(path), "--json"
    )
    assert completed.returncode == 0, completed.stderr
    with Index.open(path) as index:
        assert [hit["id"] for hit in json.loads(completed.stdout)] == index.search(CODES[41:42], 4)[0].ids[1:]
    completed = on_read_only_disk(tmp_path, *kenthash, "index", "remove", "41", "--index", str(path))
    assert completed.returncode == 1 and completed.stderr.count("\n") == 1 and "read-only" in completed.stderr
