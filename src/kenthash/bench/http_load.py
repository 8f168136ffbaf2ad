"""HTTP load for `kenthash bench serve`: clients with keep-alive connections in a process of their own.

A client sends a request either as soon as its last one is answered, or on a schedule of a fixed rate. On a schedule
the time of a request counts from when it was due, so that a server that falls behind is not rewarded for receiving
fewer requests. The clients do as little work as possible, because they run on the server's machine.
"""

import asyncio
import gc
import signal
import time
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import cast

import uvloop

from kenthash.errors import KenthashError

LIMIT = 30.0  # seconds to wait for one response


@dataclass
class LoadResult:
    """What the clients measured."""

    seconds: list[float] = field(default_factory=list)  # of each request
    due: list[float] = field(default_factory=list)  # when each was sent or due, in seconds after the start
    errors: int = 0  # statuses other than 200, and broken connections
    start: float = 0.0  # by time.perf_counter
    duration: float = 0.0


class _Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.answer: asyncio.Future[int] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end]).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(self.buffer) >= end + 4 + length and self.answer is not None and not self.answer.done():
            self.buffer.clear()
            self.answer.set_result(int(head[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        self._give_up()

    def _give_up(self) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(0)

    async def send(self, request: bytes) -> int:
        """The status of the response; 0 where the connection broke or nothing came in time."""
        assert self.transport is not None
        loop = asyncio.get_running_loop()
        self.answer = loop.create_future()
        self.transport.write(request)
        timer = loop.call_later(LIMIT, self._give_up)
        try:
            return await self.answer
        finally:
            timer.cancel()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


async def _run_client(
    host: str, port: int, requests: list[bytes], first: float, period: float, end: float, result: LoadResult
) -> None:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(_Client, host, port)
    due, number = first, 0
    while True:
        now = time.perf_counter()
        if period and now < due:
            await asyncio.sleep(due - now)
        start = due if period else time.perf_counter()
        if start >= end:
            break
        status = await client.send(requests[number % len(requests)])
        result.seconds.append(time.perf_counter() - start)
        result.due.append(start - result.start)
        if status != 200:
            result.errors += 1
            client.close()
            _, client = await loop.create_connection(_Client, host, port)
        due, number = due + period, number + 1
    client.close()


async def _run_clients(
    host: str, port: int, bodies: list[list[bytes]], seconds: float, rate: float | None
) -> LoadResult:
    start = time.perf_counter() + 0.2
    result = LoadResult(start=start)
    period = len(bodies) / rate if rate else 0.0
    await asyncio.gather(
        *(
            _run_client(host, port, [_request(host, port, body) for body in own], start + period * i / len(bodies),
                        period, start + seconds, result)
            for i, own in enumerate(bodies)
        )
    )  # fmt: skip
    result.duration = time.perf_counter() - start
    return result


def _request(host: str, port: int, body: bytes) -> bytes:
    head = f"POST /search HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _process(
    pipe: Connection, host: str, port: int, bodies: list[list[bytes]], seconds: float, rate: float | None
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    gc.freeze()  # a pause of the garbage collector here would count as the server's
    try:
        pipe.send(uvloop.run(_run_clients(host, port, bodies, seconds, rate)))
    except OSError as error:
        pipe.send(KenthashError(f"{host}, port {port}: the server no longer answers: {error}"))


def run_load(host: str, port: int, bodies: list[list[bytes]], seconds: float, rate: float | None = None) -> LoadResult:
    """Send requests for `seconds` from one process, with one client per list of bodies, which it repeats as often as
    needed; `rate` is the number of requests per second of all clients together."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_process, args=(theirs, host, port, bodies, seconds, rate), daemon=True)
    process.start()
    theirs.close()
    try:
        result: LoadResult | KenthashError = ours.recv()
    except EOFError as error:
        raise KenthashError("the process of the clients ended early") from error
    finally:
        process.terminate()
        process.join()
    if isinstance(result, KenthashError):
        raise result
    return result
