"""Milvus is killed in the middle of a write and comes back: what was acknowledged is there, and the rest is added."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import running

from kenthash.errors import KenthashError
from kenthash.search import Index
from kenthash.search.servers import milvus_requests
from processes import wait_until


def milvus_processes() -> list[int]:
    """Those that belong to this test run."""
    parents, servers = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"\0run\0standalone\0" in (folder / "cmdline").read_bytes():
                servers.append(int(folder.name))
        except OSError:  # it has ended
            continue

    def is_ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and is_ours(parents[process]))

    return [server for server in servers if is_ours(server)]


def answers(index: Index) -> bool:
    try:
        return index.stats().items >= 0
    except KenthashError as error:
        assert "Milvus" in str(error) and "\n" not in str(error)
        return False


def test_killed_in_the_middle_of_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.random.default_rng(0).integers(0, 256, (300, 8), np.uint8)
    ids, metadata = [f"item {n:03}" for n in range(300)], [{"n": n} for n in range(300)]
    with running("milvus") as address, Index.create(f"{address}/lost", bits=64) as index:
        index.add(ids[:100], codes[:100], metadata[:100])
        monkeypatch.setattr(milvus_requests, "REQUEST_BYTES", 1000)  # so that a write takes many requests
        client: Any = index.engine.client  # type: ignore[attr-defined]
        insert, sent = client.insert, 0

        def insert_then_kill(*arguments: Any, **options: Any) -> Any:
            nonlocal sent
            sent += 1
            if sent == 3:
                [server] = milvus_processes()
                os.kill(server, signal.SIGKILL)
            return insert(*arguments, **options)

        monkeypatch.setattr(client, "insert", insert_then_kill)
        try:
            index.add(ids[100:200], codes[100:200], metadata[100:200])
        except KenthashError as error:  # it was down for longer than the client tries
            assert f"{address}/lost: Milvus: " in str(error) and "\n" not in str(error)
        monkeypatch.setattr(client, "insert", insert)
        assert sent >= 3
        wait_until(lambda: answers(index))  # by the same object: it connects again
        index.upsert(ids[100:], codes[100:], metadata[100:])
        assert index.stats().items == 300
        assert [item and (item.id, item.code.tobytes(), item.metadata) for item in index.get(ids)] == [
            (ids[n], codes[n].tobytes(), metadata[n]) for n in range(300)
        ]
        assert index.search(codes[[0, 150, 299]], k=1)[0].ids == ["item 000"]
