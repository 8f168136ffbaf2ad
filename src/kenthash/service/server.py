"""Running the service: a socket, uvicorn with limits on connections, and a shutdown that lets requests end.

uvicorn waits without limit for the head of a request that comes byte by byte or not at all, accepts one of any size,
and keeps the connection of a client that does not read its answer. The application never sees these cases, so
`Connection` limits them; whole requests are limited by the middleware.
"""

import errno
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kenthash.errors import KenthashError, UsageError
from kenthash.service import logs
from kenthash.service.app import make_app
from kenthash.service.auth import check_binding
from kenthash.service.settings import Settings
from kenthash.service.state import Service, make_service

BACKLOG = 128
MAX_HEAD = 64 << 10  # bytes of a request line and its headers; what came in one piece with their start is not counted
DRAIN_SECONDS = 5  # that requests have to end when the service stops
EXIT_SECONDS = 9.0  # after which it ends in any case: a request may wait for a server that does not answer
SWITCH_SECONDS = 0.001  # after which a thread that computes yields the interpreter; Python's default: 0.005


class Connection(HttpToolsProtocol):
    head_size: int | None = None  # bytes so far of the head that is being read
    idle_since: float | None = None

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
    def idle(self) -> bool:
        """Whether no request is processed and uvicorn has set no time limit: a head is awaited, or the rest of a body
        after its answer; or it is closing, but the client does not read what was sent."""
        processing = self.cycle is not None and not self.cycle.response_complete
        return self.transport.is_closing() or not (processing or self.timeout_keep_alive_task)


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
        if not self.service.state.draining:
            threading.Thread(target=_exit_in_time, name="exit", daemon=True).start()
        self.service.state.draining = True
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # once per second
            abort_idle(self.server_state.connections, self.service.settings.seconds)
        return await super().on_tick(counter)


def serve(settings: Settings, started: Callable[[str, int], None]) -> None:
    """Serve until SIGTERM or SIGINT; `started` is called with the address and the number of items when it is ready."""
    check_binding(settings.host, settings.key)
    listener = bind(settings.host, settings.port)
    try:
        with logs.json_on_stderr():
            _run(make_service(settings), listener, started)
    finally:
        listener.close()


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
    server = Server(config, service)
    # Ours until uvicorn sets its own handlers, so that no signal is lost in between; and after it, because it raises
    # the signal a second time when it has ended.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    # The event loop needs the interpreter several times per request, and may wait this long for it each time while
    # another thread encodes or writes an answer.
    sys.setswitchinterval(SWITCH_SECONDS)
    # What is loaded stays: without this the garbage collector walks all of it at times, while every request waits.
    gc.collect()
    gc.freeze()
    listener.listen(BACKLOG)
    started(url_of(listener), service.state.current.stats.items)
    server.run([listener])


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
