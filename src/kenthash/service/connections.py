"""Connections with the limits that uvicorn does not set, on what the application never sees.

uvicorn waits without end for the head of a request that comes byte by byte or not at all, keeps one of any size, and
holds on to a client that takes no answer. Whole requests are limited by the `gate`.
"""

import time
from collections.abc import Iterable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 << 10  # bytes of a request line and its headers; what came in one piece with their start not counted


class Connection(HttpToolsProtocol):
    head: int | None = None  # bytes so far of the head that is being read
    waits_since: float | None = None

    def on_message_begin(self) -> None:
        self.head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.head = self.waits_since = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self.head is not None:
            self.head += len(data)
        super().data_received(data)
        if (self.head or 0) > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    @property
    def waits(self) -> bool:
        """Whether it is open with nothing at work, and uvicorn has set no time for it to end: a head is coming, or what
        is left of a body after its answer; or it is closing, but the client does not take what was sent."""
        at_work = self.cycle is not None and not self.cycle.response_complete
        return self.transport.is_closing() or not (at_work or self.timeout_keep_alive_task)


def hang_up(connections: Iterable[object], seconds: float) -> None:
    """Cut those that have waited for too long. To be called every now and then."""
    now = time.monotonic()
    for one in [one for one in connections if isinstance(one, Connection)]:
        if not one.waits:
            one.waits_since = None
        elif one.waits_since is None:
            one.waits_since = now
        elif now - one.waits_since > seconds:
            one.transport.abort()
