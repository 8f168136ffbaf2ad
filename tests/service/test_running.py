"""Starting, stopping, keys, limits and reloads."""

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from small_service import ITEMS, Place, make_model, make_place, name, problem, running
from typer.testing import CliRunner

from kenthash import Index
from kenthash.cli import app
from kenthash.errors import KenthashError
from kenthash.search.models import digest
from kenthash.service.app import make_app
from kenthash.service.auth import check_binding, is_loopback, read_key
from kenthash.service.batching import Batcher, Kind
from kenthash.service.gate import Gate
from kenthash.service.problems import Overloaded
from kenthash.service.service import Service, make_service
from kenthash.service.settings import Settings

KEY = "0123456789abcdef-key"


@pytest.fixture(scope="module")
def service(place: Place) -> Iterator[Service]:
    made = make_service(Settings(str(place.index)))
    yield made
    made.close()


@asynccontextmanager
async def asking(service: Service, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application itself, with other settings."""
    changed = replace(service, settings=replace(service.settings, **changes))
    gate: Gate = make_app(changed)
    transport = httpx.ASGITransport(gate, raise_app_exceptions=False)
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
        async with asking(service, max_in_flight=2) as client:
            begun, go_on = [asyncio.Event(), asyncio.Event()], asyncio.Event()

            async def body(number: int) -> AsyncIterator[bytes]:
                begun[number].set()
                await go_on.wait()
                yield json.dumps({"id": name(number)}).encode()

            headers = {"Content-Type": "application/json"}
            slow = [asyncio.create_task(client.post("/search", content=body(n), headers=headers)) for n in range(2)]
            await asyncio.gather(*(event.wait() for event in begun))
            refused = await client.post("/search", json={"id": name(0)})
            problem(refused, 503, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
            assert (await client.get("/healthz")).status_code == 200
            go_on.set()
            assert [(await task).status_code for task in slow] == [200, 200]
            assert (await client.post("/search", json={"id": name(0)})).status_code == 200

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
    """A service without its threads stands for any bug: the answer says little, the log says all but the query."""

    async def run() -> None:
        async with asking(service) as client:
            del service.searchers.pool
            try:
                problem(await client.post("/search", json={"id": name(0)}), 500, "internal")
            finally:
                service.searchers.pool = pool

    pool = service.searchers.pool
    asyncio.run(run())
    entry = json.loads(capsys.readouterr().err.splitlines()[0])
    assert entry["level"] == "error" and "AttributeError" in entry["trace"] and name(0) not in entry["trace"]


def test_encoding_is_batched_and_bounded() -> None:
    """While one batch is at work others gather: they are encoded together, up to the limit, each with its own code."""
    batches: list[list[int]] = []
    started, go_on = threading.Event(), threading.Event()

    def encode(numbers: list[int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
        batches.append(list(numbers))
        started.set()
        go_on.wait()
        if 13 in numbers:
            raise ValueError("thirteen")
        return np.array(numbers, np.uint8)[:, None]

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
    key = tmp_path / "key"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for options, reason in (
            (["--host", "0.0.0.0"], "--api-key-file"),
            (["--host", "::"], "--api-key-file"),
            (["--port", str(taken.getsockname()[1])], "is in use"),
            (["--api-key-file", str(key)], "cannot be read"),
            (["--host", "no.such.host.invalid"], "not an address"),
        ):
            with pytest.raises(KenthashError, match=reason) as error:
                CliRunner().invoke(app, [*command, *options], catch_exceptions=False)
            assert "\n" not in str(error.value)
    for weak in ("", "short", "two words, long enough"):
        key.write_text(weak)
        with pytest.raises(KenthashError, match="at least 16"):
            read_key(key)
    key.write_text(f"{KEY}\n")
    assert read_key(key) == KEY


def begun(port: int, body: bytes) -> socket.socket:
    """A request of which the last byte has not been sent."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    head = f"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    connection.sendall(head.encode() + b"\r\n\r\n" + body[:-1])
    return connection


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_reloads_and_a_drained_end_lose_no_request(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    with running(place, "--log-queries") as server:
        statuses: list[int] = []
        stop = threading.Event()

        def ask(text: bool) -> None:
            with httpx.Client(base_url=server.url, timeout=30) as client:
                while not stop.is_set():
                    asked = {"text": f"words {len(statuses)}"} if text else {"id": name(len(statuses) % ITEMS)}
                    statuses.append(client.post("/search", json=asked).status_code)

        askers = [threading.Thread(target=ask, args=(text,)) for text in (False, False, True)]
        for asker in askers:
            asker.start()
        first = httpx.get(f"{server.url}/stats").json()["model"]["digest"]
        make_model(place.folder / "new", seed=1)
        (place.folder / "new" / "model.safetensors").replace(place.model / "model.safetensors")
        _wait(lambda: _reloads(server.url, "failed") == 1)  # not the model that the index names: the old one goes on
        assert httpx.get(f"{server.url}/stats").json()["model"]["digest"] == first
        _replace_index(place)
        _wait(lambda: httpx.get(f"{server.url}/stats").json()["items"] == ITEMS + 1)
        assert httpx.get(f"{server.url}/stats").json()["model"]["digest"] == digest(place.model) != first
        reloads = _reloads(server.url, "done")
        server.process.send_signal(signal.SIGHUP)
        _wait(lambda: _reloads(server.url, "done") > reloads)
        stop.set()
        for asker in askers:
            asker.join()
        assert len(statuses) > 10 and set(statuses) == {200}
        assert '"text": "words ' in server.log.read_text()  # since it was asked to

        connection = begun(server.port, json.dumps({"text": "the last words"}).encode())
        _wait(lambda: "kenthash_requests_in_flight 2.0" in httpx.get(f"{server.url}/metrics").text)
        server.process.send_signal(signal.SIGTERM)
        _wait(lambda: not listening(server.port))
        connection.sendall(b"}")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        connection.close()
        assert server.process.wait(30) == 0


def _replace_index(place: Place) -> None:
    """A new index of the new model, with one item more, takes the place of the old one."""
    other = place.folder / "other.kh"
    with Index.open(place.index) as old, Index.create(other, old.bits) as new:
        items = [item for item in old.get(old.list_ids()) if item]
        codes = np.stack([item.code for item in items])
        new.add([item.id for item in items], codes, [item.metadata for item in items])
        new.add(["one more"], codes[:1])
        new.note("model_path", str(place.model))
        new.note("model", digest(place.model))
    for left in place.folder.glob("photos.kh-*"):
        left.unlink()
    other.replace(place.index)


def _reloads(url: str, result: str) -> float:
    text = httpx.get(f"{url}/metrics").text.partition(f'kenthash_reloads_total{{result="{result}"}}')[2]
    return float(text.split()[0]) if text else 0.0


def _wait(condition: Any) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")
