"""Running the service: a socket, uvicorn, and a shutdown that lets requests end."""

import errno
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from kenthash.errors import KenthashError, UsageError
from kenthash.service import logs
from kenthash.service.app import make_app
from kenthash.service.auth import check_binding
from kenthash.service.connections import Connection, hang_up
from kenthash.service.service import Service, make_service
from kenthash.service.settings import Settings

BACKLOG = 128
DRAINING = 5  # seconds that requests at work have to end when the service stops
LAST = 9.0  # seconds after which it ends in any case: a request may wait for a server that does not answer
SWITCH = 0.001  # seconds after which a thread that computes lets another one have the interpreter; Python's own: 0.005


class Server(uvicorn.Server):
    """uvicorn's, which also says that it is stopping (/readyz tells a load balancer), hangs up on idlers, and ends in
    time whatever does not."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.service.state.draining:
            threading.Thread(target=_end_in_time, name="last", daemon=True).start()
        self.service.state.draining = True
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # once a second
            hang_up(self.server_state.connections, self.service.settings.seconds)
        return await super().on_tick(counter)


def serve(settings: Settings, started: Callable[[str, int], None]) -> None:
    """Serve until SIGTERM or SIGINT; `started` is told the address and the number of items once requests are taken."""
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
        timeout_graceful_shutdown=min(int(service.settings.seconds) + 1, DRAINING),
        proxy_headers=False,
        ws="none",
    )
    server = Server(config, service)
    # Ours until uvicorn sets its own, so that no signal is lost in between. They are again when it has ended and
    # raises what it got once more: that is no error.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    # The event loop needs the interpreter several times a request, and would wait this long for it each time while
    # another thread encodes or writes an answer.
    sys.setswitchinterval(SWITCH)
    # What is loaded stays: without this the collector walks all of it now and then, and every request waits.
    gc.collect()
    gc.freeze()
    listener.listen(BACKLOG)
    started(address(listener), service.state.served.stats.items)
    server.run([listener])


def _end_in_time() -> None:
    time.sleep(LAST)
    logs.warning("ended before all was done", seconds=LAST)
    time.sleep(0.2)  # for the thread that writes the log
    os._exit(1)


def bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except (OSError, UnicodeError) as error:  # the latter of a name that no host can have
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {host} is in use: choose another with --port, or 0 for any") from error
        reason = getattr(error, "strerror", "not the name of a host")
        raise KenthashError(f"{host}, port {port}: cannot listen there: {reason}") from error
    return listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
