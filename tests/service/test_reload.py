"""A new index or model while requests come in, an index that fails, and an end that lets requests end."""

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from small_service import ITEMS, Place, make_model, make_place, name, problem, running, wait_until

from kenthash import Index
from kenthash.search.local.sqlite import sqlite3
from kenthash.search.models import digest
from kenthash.service.app import make_app
from kenthash.service.logs import json_on_stderr
from kenthash.service.settings import ServiceSettings
from kenthash.service.state import OpenIndex, ServedIndex, Service, make_service
from kenthash.service.watch import watching
from processes import PATIENCE


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    created = make_service(ServiceSettings(str(make_place(tmp_path).index)))
    yield created
    created.close()


def test_a_reload_waits_for_a_request_that_is_about_to_use_the_old_index(service: Service) -> None:
    about_to_use, reloaded = threading.Event(), threading.Event()

    class SlowlyUsed(OpenIndex):
        def acquire(self) -> None:
            about_to_use.set()
            reloaded.wait(1)  # if nothing prevents the reload
            super().acquire()

    parts = (service.settings, service.metrics, service.upload_decoders)
    old, new = SlowlyUsed(*parts), OpenIndex(*parts)  # both opened now, so that the reload takes no time
    to_open = iter([old, new])
    served = ServedIndex(lambda: next(to_open))

    def reload() -> None:
        about_to_use.wait()
        served.reload()
        reloaded.set()

    thread = threading.Thread(target=reload)
    thread.start()
    with served.use() as current:
        thread.join()
        assert current is old and served.current is new
        assert len(old.index.list_ids()) == ITEMS and len(old.index.search(np.zeros((1, 8), np.uint8), 3)[0]) == 3
    served.close()


def test_a_reload_that_failed_is_tried_again(service: Service) -> None:
    """Its cause may go without a change of the files that are watched: here the index says later that the new model is
    its own."""
    model = Path(service.settings.index).with_name("model")

    async def run() -> None:
        async with watching(service):
            make_model(model, seed=1)
            await asyncio.to_thread(wait_until, lambda: b'{result="failed"}' in service.metrics.text())
            with Index.open(service.settings.index) as index:
                index.note("model", digest(model))
            await asyncio.to_thread(wait_until, lambda: service.served.current.digest == digest(model))

    asyncio.run(run())


def test_an_index_that_fails_is_told_and_logged(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(service.settings.index) as connection:
        connection.execute("DROP TABLE items")

    async def run() -> None:
        transport = httpx.ASGITransport(make_app(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.post("/search", json={"id": name(0)})
            assert "items" not in problem(answer, 503, "index-unavailable")

    with json_on_stderr():
        asyncio.run(run())
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert any(entry["level"] == "warning" and "no such table" in entry.get("error", "") for entry in entries)


def begun(port: int, body: bytes) -> socket.socket:
    """A request whose body the server awaits, and of which the last byte has not been sent."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    head = f"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    connection.sendall(head.encode() + b"\r\nExpect: 100-continue\r\n\r\n")
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100")
    connection.sendall(body[:-1])
    return connection


def get(url: str, path: str) -> httpx.Response:
    return httpx.get(f"{url}{path}", timeout=PATIENCE)


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("workers", [1, 2])
def test_reloads_and_a_drained_end_lose_no_request(tmp_path: Path, workers: int) -> None:
    place = make_place(tmp_path)
    with running(place, "--log-queries", "--workers", str(workers)) as server:
        statuses: list[int] = []
        stop = threading.Event()

        def ask(text: bool) -> None:
            with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
                while not stop.is_set():
                    query = {"text": f"words {len(statuses)}"} if text else {"id": name(len(statuses) % ITEMS)}
                    statuses.append(client.post("/search", json=query).status_code)

        askers = [threading.Thread(target=ask, args=(text,)) for text in (False, False, True)]
        for asker in askers:
            asker.start()
        first = get(server.url, "/stats").json()["model"]["digest"]
        make_model(place.folder / "new", seed=1)
        (place.folder / "new" / "model.safetensors").replace(place.model / "model.safetensors")
        wait_until(lambda: _reloads(server.url, "failed") >= workers)  # not the index's model: the old one goes on
        assert get(server.url, "/stats").json()["model"]["digest"] == first
        _replace_index(place)
        wait_until(lambda: _reloads(server.url, "done") >= workers)
        assert get(server.url, "/stats").json()["items"] == ITEMS + 1
        assert get(server.url, "/stats").json()["model"]["digest"] == digest(place.model) != first
        reloads = _reloads(server.url, "done")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: _reloads(server.url, "done") >= reloads + workers)
        wait_until(lambda: len(statuses) > 10)
        stop.set()
        for asker in askers:
            asker.join()
        assert set(statuses) == {200}
        assert '"text":"words ' in server.log.read_text()  # since it was asked to

        connection = begun(server.port, json.dumps({"text": "the last words"}).encode())
        assert "kenthash_requests_in_flight 1.0" in get(server.url, "/metrics").text  # that for /metrics itself
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not listening(server.port))
        connection.sendall(b"}")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        connection.close()
        assert server.process.wait(PATIENCE) == 0


def test_what_is_written_while_the_index_is_replaced_is_in_the_new_one(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    acknowledged: list[str] = []
    with running(place, "--writable") as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:

        def put(id: str) -> int:
            return client.put(f"/items/{id}", json={"code": "00" * 8}).status_code

        assert put("before") == 201
        _replace_index(place)
        for number in range(10_000):
            status = put(f"after {number}")
            assert status in (201, 503)
            acknowledged += [f"after {number}"] if status == 201 else []
            if _reloads(server.url, "done") and len(acknowledged) > 3:
                break
    with Index.open(place.index) as index:
        assert "one more" in index and acknowledged and all(item is not None for item in index.get(acknowledged))


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
    text = get(url, "/metrics").text.partition(f'kenthash_reloads_total{{result="{result}"}}')[2]
    return float(text.split()[0]) if text else 0.0
