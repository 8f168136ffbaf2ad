"""What stands before every request: the name it came under, the key, how many are at work, how much it sends, how long
it takes. And what follows every answer: headers, figures, one line in the log."""

import asyncio
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kenthash.service import logs
from kenthash.service.auth import allows, is_foreign, is_local_name, is_open
from kenthash.service.metrics import Metrics
from kenthash.service.problems import Overloaded, Problem, problem_of
from kenthash.service.settings import Settings

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]
SOURCES = (
    b"default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
POLICY = (b"content-security-policy", SOURCES)
DRAINED = 4  # times the limit that is still read, and forgotten, so that a client hears why it is refused


class Gate:
    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.at_work = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the life of the service; there are no websockets here
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        exchange = _Exchange(send, scope["path"].startswith("/static/"))
        try:
            await self._answer(scope, receive, exchange)
        except ClientDisconnect:
            exchange.status = exchange.status or 499
        except Exception as error:
            logs.failure("failed", error, method=scope["method"], route=_route(scope))
            if not exchange.status:
                await problem_of(error, scope["method"]).response()(scope, receive, exchange.send)
        self._tell(scope, exchange, time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, exchange: "_Exchange") -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal.response()(scope, receive, exchange.send)
            return
        # Files go out whole: a part of a small picture helps nobody, and a wrong one would be refused in plain text.
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"range"]
        self.at_work += 1
        self.metrics.in_flight.set(self.at_work)
        try:
            async with asyncio.timeout(self.settings.seconds) as limit:
                await self.app(scope, _limited(receive, self.settings.max_body), exchange.send)
        except TimeoutError:
            if not limit.expired():
                raise
            if not exchange.status:
                problem = Problem("time-limit", f"no answer within {self.settings.seconds:g} s: ask for less at once")
                await problem.response()(scope, receive, exchange.send)
        finally:
            self.at_work -= 1
            self.metrics.in_flight.set(self.at_work)

    def _refusal(self, scope: Scope) -> Problem | None:
        headers, path, key = Headers(scope=scope), scope["path"], self.settings.key
        if key is None and not is_local_name(headers.get("host", ""), self.settings.host):
            return Problem("wrong-host", "without a key the service answers to localhost and 127.0.0.1 only")
        if is_foreign(scope["method"], path, headers):
            return Problem("foreign-page", "a page of another site asks: open the service's own page instead")
        if key is not None and not is_open(path) and not allows(key, headers):
            detail = "send the service's key as `Authorization: Bearer KEY`"
            return Problem("key-required", detail, {"WWW-Authenticate": "Bearer"})
        if self.at_work >= self.settings.max_in_flight and path not in ("/healthz", "/readyz", "/metrics"):
            self.metrics.refused.inc()
            return Overloaded()
        return None

    def _tell(self, scope: Scope, exchange: "_Exchange", seconds: float) -> None:
        route, method = _route(scope), scope["method"]
        self.metrics.answered(method if method in METHODS else "other", route, exchange.status, seconds)
        entry: dict[str, Any] = {"query": scope["query"]} if "query" in scope else {}
        logs.info(
            "request",
            method=method[:16],
            route=route,
            status=exchange.status,
            ms=round(1e3 * seconds, 2),
            bytes=exchange.bytes,
            **entry,
        )


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})


class _Exchange:
    """Passes an answer on, with our headers, and remembers what it was."""

    def __init__(self, send: Send, static: bool) -> None:
        self._send, self._static = send, static  # the page's own files may be kept, and asked for by their ETag
        self.status = self.bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = list(message["headers"])
            names = {name for name, _ in own}
            kept = (b"cache-control", b"no-cache" if self._static else b"no-store")
            message["headers"] = own + HEADERS + [default for default in (POLICY, kept) if default[0] not in names]
        elif message["type"] == "http.response.body":
            self.bytes += len(message.get("body", b""))
        await self._send(message)


def _limited(receive: Receive, most: int) -> Receive:
    """Count what comes, whatever its Content-Length says. A client that sends somewhat too much is heard out before it
    is refused, since many cannot read an answer while they send."""
    total = 0

    async def limited() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total <= most:
            return message
        while message.get("more_body") and total <= DRAINED * most:
            message = await receive()
            total += len(message.get("body", b""))
        raise Problem("too-large", f"more than {most >> 20} MiB: send a smaller picture", {"Connection": "close"})

    return limited


def _route(scope: Scope) -> str:
    """The pattern of the address, without the ids in it."""
    return getattr(scope.get("route"), "path", None) or ("/static" if scope["path"].startswith("/static/") else "none")
