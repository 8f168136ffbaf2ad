"""Starting, keys, limits, and the encoder's batches."""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from small_service import Place, jpeg, name, problem, running
from typer.testing import CliRunner

from kenthash.cli import app
from kenthash.errors import KenthashError
from kenthash.service.app import make_app
from kenthash.service.auth import check_binding, is_loopback, read_key
from kenthash.service.encoding import Batcher, Kind
from kenthash.service.errors import Overloaded
from kenthash.service.logs import json_on_stderr
from kenthash.service.settings import ServiceSettings
from kenthash.service.state import SearchThreads, Service, make_service
from processes import PATIENCE
from windows import path_that_lacks

KEY = "0123456789abcdef-key"


@pytest.fixture(scope="module")
def service(place: Place) -> Iterator[Service]:
    made = make_service(ServiceSettings(str(place.index)))
    yield made
    made.close()


@asynccontextmanager
async def asking(service: Service, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application itself, with other settings."""
    changed = replace(service, settings=replace(service.settings, **changes))
    transport = httpx.ASGITransport(make_app(changed), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def test_a_key_is_asked_for(service: Service) -> None:
    async def run() -> None:
        async with asking(service, key=KEY) as client:
            for path in ("/healthz", "/readyz", "/openapi.json", "/docs", "/"):
                assert (await client.get(path)).status_code == 200
            assert (await client.get("/healthz")).json()["key_required"] is True
            guarded = ("/stats", "/labels", "/metrics", f"/items/{name(0)}", f"/items/{name(0)}/thumbnail", "/nowhere")
            for headers in ({}, {"X-API-Key": KEY[:-1]}, {"Authorization": f"Basic {KEY}"}, {"X-API-Key": KEY + "x"}):
                for path in guarded:
                    answer = await client.get(path, headers=headers)
                    problem(answer, 401, "key-required")
                    assert answer.headers["www-authenticate"] == "Bearer"
                problem(await client.post("/search", json={"id": name(0)}, headers=headers), 401, "key-required")
            for headers in ({"X-API-Key": KEY}, {"Authorization": f"Bearer {KEY}"}, {"authorization": f"bearer {KEY}"}):
                for path in guarded[:-1]:
                    assert (await client.get(path, headers=headers)).status_code == 200

    asyncio.run(run())


def test_reading_only(service: Service) -> None:
    async def run() -> None:
        async with asking(service) as client:
            problem(await client.put("/items/x", json={"code": "00" * 8}), 403, "read-only")
            problem(await client.delete(f"/items/{name(0)}"), 403, "read-only")
            assert (await client.get(f"/items/{name(0)}")).status_code == 200

    asyncio.run(run())


def test_too_many_requests_are_told_to_come_back(service: Service) -> None:
    async def run() -> None:
        async with asking(service, max_in_flight=0) as client:
            refused = await client.post("/search", json={"id": name(0)})
            problem(refused, 503, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
            problem(await client.get(f"/items/{name(0)}"), 503, "overloaded")
            assert (await client.get("/healthz")).status_code == 200

    asyncio.run(run())


def test_slow_bodies_hold_up_each_other_only(service: Service) -> None:
    async def run() -> None:
        async with asking(service, max_in_flight=2) as client:
            begun, go_on = [asyncio.Event() for _ in range(3)], asyncio.Event()

            async def body(number: int) -> AsyncIterator[bytes]:
                whole = json.dumps({"id": name(number)}).encode()
                yield whole[: 1 + number]  # the first has sent the least
                begun[number].set()
                await go_on.wait()
                yield whole[1 + number :]

            headers, tasks = {"Content-Type": "application/json"}, []
            for number in range(3):
                tasks.append(asyncio.create_task(client.post("/search", content=body(number), headers=headers)))
                await begun[number].wait()
                assert (await client.post("/search", json={"id": name(0)})).status_code == 200
            slowest = await tasks[0]
            assert "takes too long" in problem(slowest, 503, "overloaded") and slowest.headers["connection"] == "close"
            go_on.set()
            assert [(await task).status_code for task in tasks[1:]] == [200, 200]

    asyncio.run(run())


def test_time_is_limited(service: Service) -> None:
    async def run() -> None:
        async with asking(service, seconds=0.2) as client:

            async def never() -> AsyncIterator[bytes]:
                yield b"{"
                await asyncio.Event().wait()

            headers = {"Content-Type": "application/json"}
            problem(await client.post("/search", content=never(), headers=headers), 504, "time-limit")

    asyncio.run(run())


def test_what_fails_inside_is_a_problem_too(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    """A service whose threads have ended stands for any bug: the answer says little, the log all but the query."""

    async def run() -> None:
        ended = replace(service, searchers=SearchThreads("ended", 1, 10))
        ended.searchers.close()
        async with asking(ended) as client:
            problem(await client.post("/search", json={"id": name(0)}), 500, "internal")

    with json_on_stderr():
        asyncio.run(run())
    entry = json.loads(capsys.readouterr().err.splitlines()[0])
    assert entry["level"] == "error" and "RuntimeError" in entry["trace"] and name(0) not in entry["trace"]


def test_encoding_is_batched_and_bounded() -> None:
    """While one batch is at work others gather: they are encoded together, up to the limit, each with its own code."""
    batches: list[list[int]] = []
    started, go_on = threading.Event(), threading.Event()

    def encode(numbers: Sequence[int]) -> NDArray[np.float32]:
        batches.append(list(numbers))
        started.set()
        go_on.wait()
        if 13 in numbers:
            raise ValueError("thirteen")
        return np.array(numbers, np.float32)[:, None]

    async def run() -> None:
        batcher = Batcher(10, lambda *_: None)
        kind = Kind("number", encode, 4)
        first = asyncio.create_task(batcher.encode(kind, 0))
        await asyncio.to_thread(started.wait)
        rest = [asyncio.create_task(batcher.encode(kind, n)) for n in (*range(1, 7), 13, 14, 15, 16)]
        await asyncio.sleep(0)  # they are in the queue now, which is full
        with pytest.raises(Overloaded):
            await batcher.encode(kind, 99)
        go_on.set()
        codes = await asyncio.gather(first, *rest, return_exceptions=True)
        assert [int(c[0]) for c in codes if not isinstance(c, BaseException)] == [0, 1, 2, 3, 4, 5, 6, 14, 15, 16]
        assert isinstance(codes[7], ValueError)
        batcher.close()

    asyncio.run(run())
    assert batches[:3] == [[0], [1, 2, 3, 4], [5, 6, 13, 14]] and batches[-1] == [15, 16]


def test_binding(tmp_path: Path, place: Place) -> None:
    assert is_loopback("127.0.0.1") and is_loopback("localhost") and is_loopback("127.9.9.9")
    assert not is_loopback("0.0.0.0") and not is_loopback("")
    check_binding("0.0.0.0", KEY)
    command = ["serve", "--index", str(place.index), "--model", str(place.model)]
    key, good = tmp_path / "key", tmp_path / "good"
    good.write_text(f"{KEY}\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for options, reason in (
            (["--host", "0.0.0.0"], "--api-key-file"),
            (["--host", "::"], "--api-key-file"),
            (["--port", str(taken.getsockname()[1])], "is in use"),
            (["--api-key-file", str(key)], "cannot be read"),
            (["--host", "no.such.host.invalid"], "not an address"),
            (["--host", "x" * 70], "not an address"),
            (["--host", "x" * 70, "--api-key-file", str(good)], "cannot listen"),
            (["--timeout", "inf"], "number of seconds"),
        ):
            with pytest.raises(KenthashError, match=reason) as error:
                CliRunner().invoke(app, [*command, *options], catch_exceptions=False)
            assert "\n" not in str(error.value)
    for weak in ("", "short", "two words, long enough"):
        key.write_text(weak)
        with pytest.raises(KenthashError, match="at least 16"):
            read_key(key)
    assert read_key(good) == KEY


def test_a_log_that_nobody_reads_stops_nothing(place: Place) -> None:
    """A pipe takes some 64 KiB; these requests log more."""
    with running(place, unread_log=True) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        for _ in range(1000):
            assert client.get("/healthz").status_code == 200


def test_nothing_of_the_log_is_lost_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Here of another library, whose lines are JSON as well."""
    with json_on_stderr():
        for number in range(5000):
            logging.getLogger("elsewhere").warning("half a pair: %s %d", "\ud800", number)
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(entries) == 5000 and entries[-1].pop("time").endswith("Z")
    assert entries[-1] == {
        "level": "warning", "event": "log", "logger": "elsewhere", "message": "half a pair: \ud800 4999",
    }  # fmt: skip


def test_the_log_says_what_a_start_waits_for(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with json_on_stderr():
        make_service(ServiceSettings(str(place.index))).close()
    (entry,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (entry["event"], entry["index"]) == ("loading", str(place.index))


def test_an_index_is_served_without_what_windows_lacks(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", path_that_lacks(tmp_path / "site"))
    with running(place) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        assert client.get("/readyz").status_code == 200
        picture = {"image": ("picture.jpg", jpeg(1), "image/jpeg")}
        by_words = client.post("/search", json={"text": "two dogs", "k": 3})
        for answer in (by_words, client.post("/search", files=picture, data={"k": "3"})):
            assert answer.status_code == 200 and len(answer.json()["hits"]) == 3, answer.text
