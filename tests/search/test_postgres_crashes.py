"""PostgreSQL crashes in the middle of writes and comes back: what was acknowledged stays, and the same index goes on.
Either the processes of its connections are killed, so that the first one recovers, or the server as a whole is.

`KENTHASH_TORTURE=20` crashes it 20 times as often.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from servers import restartable_postgres, running

from kenthash.errors import KenthashError
from kenthash.search import Index
from processes import PATIENCE, wait_until

CRASHES = 3 * int(os.environ.get("KENTHASH_TORTURE", "1"))
GROUP = 20  # items that are always written together


def crash() -> bool:
    """Kill the processes of the server that this test started, all but the first, which recovers from its log."""
    parents, programs = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            programs[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:  # ended meanwhile
            continue
    killed = False
    for process, program in programs.items():
        above = process
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above == os.getpid() and program.startswith(b"postgres: "):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                killed = True
    return killed


def state_of(index: Index) -> dict[str, tuple[bytes, object]]:
    items = index.get(index.list_ids())
    return {item.id: (item.code.tobytes(), item.metadata["turn"]) for item in items if item is not None}


def write_until_it_crashes(
    index: Index, crash: Callable[[], object], come_back: Callable[[], object], crashes: int
) -> tuple[int, list[str]]:
    """The number of changes, and the errors."""
    errors: list[str] = []
    turn = 0
    acknowledged: dict[str, tuple[bytes, object]] = {}
    for crash_number in range(crashes):
        timer = threading.Timer(0.05 * (1 + crash_number % 5), crash)
        timer.start()
        written: dict[str, tuple[bytes, object]] = {}
        try:
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:  # until the crash, which ends the statement under way
                turn += 1
                ids = [f"{turn % 3}-{i}" for i in range(GROUP)]
                codes = np.full((GROUP, 4), turn % 256, np.uint8)
                written = {name: (codes[0].tobytes(), turn) for name in ids}
                index.upsert(ids, codes, [{"turn": turn}] * GROUP)
                acknowledged |= written
        except KenthashError as error:
            errors.append(str(error))
        timer.join()
        come_back()
        wait_until(lambda: answers(index))
        actual = state_of(index)
        assert actual in (acknowledged, acknowledged | written)  # the last change as a whole, or not at all
        acknowledged = actual
    assert len(errors) == crashes and not any("\n" in error or "Traceback" in error for error in errors)
    assert turn > crashes
    return turn, errors


def test_crashes_of_postgresql_lose_nothing() -> None:
    with running("postgres") as address, Index.create(f"{address}&table=crashes", 32) as index:
        changes, _ = write_until_it_crashes(index, crash, lambda: None, CRASHES)
        print(f"crashes of PostgreSQL: {CRASHES:,}, changes {changes:,}")


def test_a_postgresql_that_is_killed_and_started_again_loses_nothing() -> None:
    with restartable_postgres() as server, Index.create(f"{server.address}&table=killed", 32) as index:

        def come_back() -> None:
            with pytest.raises(KenthashError) as error:
                index.list_ids()
            assert "\n" not in str(error.value)
            server.start()

        changes, _ = write_until_it_crashes(index, server.kill, come_back, CRASHES)
        print(f"PostgreSQL killed and started again: {CRASHES:,}, changes {changes:,}")


def answers(index: Index) -> bool:
    """The same index connects again by itself."""
    try:
        index.list_ids(limit=1)
    except KenthashError:
        return False
    return True
