"""The service where the disk is full, and where there is little memory: it goes on, and recovers by itself."""

import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from small_service import ITEMS, jpeg, make_place, name, problem, running

from components import need_shim
from kenthash.search import Index
from processes import PATIENCE
from shim import compiled_shim, shimmed


def test_a_full_disk_stops_writes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_shim(compiled_shim)
    place, full = make_place(tmp_path / "place"), tmp_path / "full"
    environment = shimmed(place.folder, full=full)
    for key in ("LD_PRELOAD", "SHIM_ROOT", "SHIM_FULL"):
        monkeypatch.setenv(key, environment[key])
    with running(place, "--writable") as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:

        def put(id: str) -> httpx.Response:
            return client.put(f"/items/{id}", json={"code": np.full(8, 7, np.uint8).tobytes().hex()})

        assert put("before").status_code == 201
        full.touch()
        for _ in range(3):
            assert "\n" not in problem(put("lost"), 503, "index-unavailable")
            problem(client.delete(f"/items/{name(1)}"), 503, "index-unavailable")
            hits = client.post("/search", json={"id": name(0), "k": 50}).json()["hits"]
            assert len(hits) == ITEMS  # searches go on: all but the item itself
            assert client.get("/healthz").status_code == 200
        full.unlink()
        assert put("after").status_code == 201
    with Index.open(place.index) as index:
        assert {"before", "after"} <= set(index.list_ids()) and "lost" not in index.list_ids()
        assert len(index.list_ids()) == ITEMS + 2


def test_little_memory_costs_single_requests(tmp_path: Path) -> None:
    """The memory of the process is limited as on a small machine, and pictures come that take much."""
    megabytes = 3000
    limited = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_AS, "
        f"({megabytes << 20}, {megabytes << 20})); os.execv(sys.argv[1], sys.argv[1:])"
    )
    place = make_place(tmp_path)
    with running(place, before=(sys.executable, "-c", limited)) as server:
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
            large = {"image": ("large.jpg", jpeg(1, (9000, 9000)), "image/jpeg")}
            for _ in range(3):
                assert client.post("/search", files=large).status_code in (200, 413, 422, 503)
                small = {"image": ("small.jpg", jpeg(1), "image/jpeg")}
                assert client.post("/search", files=small).status_code == 200
            assert client.get("/healthz").status_code == 200
        assert server.process.poll() is None
