"""Running the service: a socket, uvicorn with limits on connections, and a shutdown that lets requests end.

uvicorn waits without limit for the head of a request that comes byte by byte or not at all, accepts one of any size,
keeps the connection of a client that does not read its answer, and accepts connections until there are no descriptors
left. The application never sees these cases, so `Connection` limits them; whole requests are limited by the middleware.
"""

import asyncio
import ctypes
import errno
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType

import uvicorn
import uvicorn.lifespan.on  # which uvicorn imports when it runs: too late for workers to share it
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kenthash.errors import KenthashError, UsageError
from kenthash.service import logs
from kenthash.service.app import describe_routes, make_app
from kenthash.service.auth import check_binding
from kenthash.service.settings import ServiceSettings
from kenthash.service.state import Service, make_service, preload
from kenthash.service.workers import serve_by_workers

try:
    import resource

    import uvicorn.loops.uvloop  # here for the same reason
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

BACKLOG = 128
MAX_CONNECTIONS = 1000  # beyond which each new one closes the one that has been waiting longest
RESERVED = 128  # descriptors for the index, the processes that decode pictures, and connections about to be closed
MAX_HEAD = 64 << 10  # bytes of a request line and its headers; what came in one piece with their start is not counted
DRAIN_SECONDS = 5  # that requests have to end when the service stops
EXIT_SECONDS = 9.0  # after which it ends in any case: a request may wait for a server that does not answer
SWITCH_SECONDS = 0.001  # after which a thread that computes yields the interpreter; Python's default: 0.005


class Connection(HttpToolsProtocol):
    max_connections = MAX_CONNECTIONS
    head_size: int | None = None  # bytes so far of the head that is being read
    idle_since: float | None = None
    waiting_since = 0.0  # when it was accepted, or its last answer complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting_since = time.monotonic()
        if len(self.connections) > self.max_connections:
            waiting = [each for each in self.connections if isinstance(each, Connection) and not each.processing]
            oldest = min(waiting, key=lambda connection: connection.waiting_since)  # this one, where there is no other
            self.connections.discard(oldest)  # or those that are accepted at the same time would choose it, too
            oldest.transport.abort()

    def on_response_complete(self) -> None:
        self.waiting_since = time.monotonic()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        self.head_size = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.head_size = self.idle_since = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self.head_size is not None:
            self.head_size += len(data)
        super().data_received(data)
        if (self.head_size or 0) > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    @property
    def processing(self) -> bool:
        """Whether a request is processed, or its body awaited."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def idle(self) -> bool:
        """Whether no request is processed and uvicorn has set no time limit: a head is awaited, or the rest of a body
        after its answer; or it is closing, but the client does not read what was sent."""
        return self.transport.is_closing() or not (self.processing or self.timeout_keep_alive_task)


def abort_idle(connections: Iterable[object], seconds: float) -> None:
    """Abort connections that have been idle for too long. To be called regularly."""
    now = time.monotonic()
    for connection in [each for each in connections if isinstance(each, Connection)]:
        if not connection.idle:
            connection.idle_since = None
        elif connection.idle_since is None:
            connection.idle_since = now
        elif now - connection.idle_since > seconds:
            connection.transport.abort()


class Server(uvicorn.Server):
    """uvicorn's, which also reports that it is stopping (by /readyz, to a load balancer), aborts idle connections, and
    limits the time of the shutdown."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGINT and self.service.settings.workers > 1:
            return  # Ctrl-C reaches all processes of a terminal: workers wait for the supervisor's SIGTERM
        if not self.service.served.draining:
            threading.Thread(target=_exit_in_time, name="exit", daemon=True).start()
        self.service.served.draining = True
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # once per second
            abort_idle(self.server_state.connections, self.service.settings.seconds)
        return await super().on_tick(counter)


def serve(settings: ServiceSettings, started: Callable[[str, int], None]) -> None:
    """Serve until SIGTERM or SIGINT; `started` is called with the address and the number of items when it is ready."""
    check_binding(settings.host, settings.key)
    listener = bind(settings.host, settings.port)
    try:
        if settings.workers == 1:
            with logs.json_on_stderr():
                _run(make_service(settings), listener, started)
            return
        address = listener.getsockname()
        listener.close()  # which only found out that the port is free: sockets that share one do not tell
        listener = socket.socket(listener.family, listener.type)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        with logs.json_without_a_thread():
            items = preload(settings)
        describe_routes()
        _keep_loaded()
        serve_by_workers(settings, listener, _work, lambda: started(url_of(listener), items))
    finally:
        listener.close()


def _work(settings: ServiceSettings, listener: socket.socket, ready: Callable[[], None]) -> None:
    """What a worker does."""
    with logs.json_on_stderr():
        _run(make_service(settings), listener, lambda url, items: ready())


def _run(service: Service, listener: socket.socket, started: Callable[[str, int], None]) -> None:
    config = uvicorn.Config(
        make_app(service),
        http=Connection,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=min(int(service.settings.seconds) + 1, DRAIN_SECONDS),
        proxy_headers=False,
        ws="none",
    )
    Connection.max_connections = _max_connections()
    server = Server(config, service)
    # Ours until uvicorn sets its own handlers, so that no signal is lost in between; and after it, because it raises
    # the signal a second time when it has ended.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    # The event loop needs the interpreter several times per request, and may wait this long for it each time while
    # another thread encodes or writes an answer.
    sys.setswitchinterval(SWITCH_SECONDS)
    _keep_loaded()
    listener.listen(BACKLOG)
    started(url_of(listener), service.served.current.stats.items)
    server.run([listener])


def _keep_loaded() -> None:
    """What is loaded stays. Without this the garbage collector walks all of it at times, while every request waits; in
    workers it also writes to, and so copies, what they share. Memory that loading has freed goes back to the system:
    workers that use it again would each copy what is in it."""
    gc.collect()
    gc.freeze()
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _max_connections() -> int:
    """As many as there are descriptors for, of which a system often allows more than it gives to begin with."""
    if resource is None:
        return MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(min(MAX_CONNECTIONS, soft - RESERVED), 1)


def _exit_in_time() -> None:
    time.sleep(EXIT_SECONDS)
    logs.warning("ended before all requests were answered", seconds=EXIT_SECONDS)
    time.sleep(0.2)  # for the thread that writes the log
    os._exit(1)


def bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {host} is in use: choose another with --port, or 0 for any") from error
        reason = getattr(error, "strerror", "not the name of a host")
        raise KenthashError(f"{host}, port {port}: cannot listen there: {reason}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
