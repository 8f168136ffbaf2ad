"""Clients for the bench of the service: kept-alive connections in one process, as cheap as they can be.

Requests go out either as soon as the last one is answered, or at a fixed rate on a schedule; then a request's time
counts from when it was due, so that a server which falls behind does not look good for being asked less.
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

LIMIT = 30.0  # seconds to wait for one answer


@dataclass
class Load:
    seconds: list[float] = field(default_factory=list)  # of each answer
    due: list[float] = field(default_factory=list)  # when each was asked for, in seconds after the start
    errors: int = 0  # answers other than 200, and connections that broke
    start: float = 0.0  # by time.perf_counter
    took: float = 0.0


class _Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.answer: asyncio.Future[int] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's do not say that they are

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

    async def ask(self, request: bytes) -> int:
        """The status; 0 where the connection broke or nothing came."""
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


async def _one(
    host: str, port: int, requests: list[bytes], first: float, period: float, end: float, load: Load
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
        status = await client.ask(requests[number % len(requests)])
        load.seconds.append(time.perf_counter() - start)
        load.due.append(start - load.start)
        if status != 200:
            load.errors += 1
            client.close()
            _, client = await loop.create_connection(_Client, host, port)
        due, number = due + period, number + 1
    client.close()


async def _all(host: str, port: int, bodies: list[list[bytes]], seconds: float, rate: float | None) -> Load:
    start = time.perf_counter() + 0.2
    load = Load(start=start)
    period = len(bodies) / rate if rate else 0.0
    await asyncio.gather(
        *(
            _one(host, port, [_request(host, port, body) for body in own], start + period * i / len(bodies), period,
                 start + seconds, load)
            for i, own in enumerate(bodies)
        )
    )  # fmt: skip
    load.took = time.perf_counter() - start
    return load


def _request(host: str, port: int, body: bytes) -> bytes:
    head = f"POST /search HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _process(
    pipe: Connection, host: str, port: int, bodies: list[list[bytes]], seconds: float, rate: float | None
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this
    gc.freeze()  # a pause for collecting here would count as the server's
    try:
        pipe.send(uvloop.run(_all(host, port, bodies, seconds, rate)))
    except OSError as error:
        pipe.send(KenthashError(f"{host}, port {port}: the server does not answer any more: {error}"))


def drive(host: str, port: int, bodies: list[list[bytes]], seconds: float, rate: float | None = None) -> Load:
    """Have one process ask for so many seconds, with a connection for each list of bodies, which it goes through again
    and again; `rate` is that of all of them together."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_process, args=(theirs, host, port, bodies, seconds, rate), daemon=True)
    process.start()
    theirs.close()
    try:
        load: Load | KenthashError = ours.recv()
    except EOFError as error:
        raise KenthashError("the process of the clients ended before its time") from error
    finally:
        process.terminate()
        process.join()
    if isinstance(load, KenthashError):
        raise load
    return load
