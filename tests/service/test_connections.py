"""Clients that keep the server waiting are cut off, and others served meanwhile."""

import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from small_service import Running, make_place, name, resident, running, wait_until

from processes import PATIENCE

HASTE = 5  # seconds: what these tests themselves send must not be late on a busy machine


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = make_place(tmp_path_factory.mktemp("hasty"))
    noise = np.random.default_rng(0).integers(0, 256, (2500, 2500, 3), np.uint8)
    Image.fromarray(noise).save(place.photos / "2024" / "0.jpg", quality=95)  # more than the sockets take at once
    with running(place, "--timeout", str(HASTE)) as server:
        yield server


def connect(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)


def ended(connection: socket.socket, patience: float) -> bool:
    """Whether the server hangs up within so many seconds."""
    connection.settimeout(patience)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def answered(connection: socket.socket) -> bool:
    received = b""
    while not received.endswith(b"}"):  # head and body may come in two pieces
        part = connection.recv(1 << 16)
        assert part, received
        received += part
    return received.startswith(b"HTTP/1.1 200")


def test_a_head_has_to_come_in_time(hasty: Running) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(hasty) as silent, connect(hasty) as slow, connect(hasty) as patient:
        patient.sendall(request)
        assert answered(patient)
        slow.sendall(request[:-2] + b"X-Slow: ")
        for _ in range(10 * PATIENCE):  # a byte each tenth of a second
            if ended(slow, 0.1):
                break
            slow.sendall(b"a")
        else:
            raise AssertionError("it goes on for ever")
        assert ended(silent, PATIENCE)
        patient.sendall(request)  # a connection between two requests is no such case
        assert answered(patient)


def test_a_head_has_an_end(hasty: Running) -> None:
    before = resident(hasty.process.pid)
    with connect(hasty) as endless:
        endless.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Endless: ")
        with pytest.raises(OSError):
            for _ in range(200):
                endless.sendall(b"a" * (1 << 20))
    assert resident(hasty.process.pid) - before < 30 << 20
    long = {"X-Long": "a" * 30_000}
    assert httpx.get(f"{hasty.url}/healthz", headers=long, timeout=PATIENCE).status_code == 200


def test_an_answer_has_to_be_taken(hasty: Running) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", hasty.port))
        ends = f":{hasty.port:04X} 0100007F:{connection.getsockname()[1]:04X} 01 "  # of the server's, while it holds it
        connection.sendall(f"GET /items/{name(0)}/image HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: ends in Path("/proc/net/tcp").read_text())
        wait_until(lambda: ends not in Path("/proc/net/tcp").read_text())


BODY = b'{"id": "%s"}' % name(1).encode()
POST = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (CHUNKED, b""),
        (CHUNKED, b"1\r\n \r\n"),
        (CHUNKED, b"10000\r\n" + b" " * (1 << 16) + b"\r\n"),  # faster than a body that has only begun
        (b"Content-Length: 20000000\r\n\r\n", b" " * (1 << 16)),
        (b"Content-Length: 1000\r\n\r\n", b" "),
    ],
    ids=["silent", "slow", "fast", "of a large length", "of a small length"],
)
def test_seventy_endless_bodies_turn_nobody_away(hasty: Running, head: bytes, part: bytes) -> None:
    bodies: list[socket.socket] = []

    def go_on() -> None:
        """One part more of each body; those that were ended begin again."""
        for place, body in enumerate(bodies):
            with suppress(BlockingIOError):
                try:
                    body.send(part)
                except (ConnectionError, TimeoutError):
                    body.close()
                    bodies[place] = begin()

    def begin() -> socket.socket:
        body = connect(hasty)
        body.sendall(POST + head)
        body.setblocking(False)
        return body

    def end() -> None:
        for body in bodies:
            body.close()

    with ExitStack() as stack:
        stack.callback(end)
        for _ in range(70):
            bodies.append(begin())
        for _ in range(5):
            go_on()
            with connect(hasty) as own:
                own.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(BODY))
                go_on()  # while the body is awaited
                time.sleep(0.1)
                own.sendall(BODY)
                assert answered(own)


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Enough for the connections of these tests."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard) if hard != resource.RLIM_INFINITY else 4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("most", "connections"), [(200, 600), (1024, 1100)])
def test_more_connections_than_descriptors(tmp_path: Path, descriptors: None, most: int, connections: int) -> None:
    """Those that wait longest are closed, so that new ones are answered."""
    limits = (sys.executable, "-c", f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, {most})); os.execv(sys.argv[1], sys.argv[1:])")  # fmt: skip  # noqa: E501
    with running(make_place(tmp_path), before=limits) as server, ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(connections)]
        for _ in range(3):
            assert httpx.get(f"{server.url}/healthz", timeout=PATIENCE).status_code == 200
            assert httpx.post(f"{server.url}/search", json={"id": name(0)}, timeout=PATIENCE).status_code == 200
        wait_until(lambda: len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) < most)
        assert ended(silent[0], PATIENCE) and not ended(silent[-1], 0.1)
