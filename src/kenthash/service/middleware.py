"""The middleware around every request: host name, origin, key, and limits on concurrency, size and time before it is
processed; then errors as answers, headers, metrics and one line in the log."""

import asyncio
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kenthash.service import logs
from kenthash.service.auth import has_key, is_foreign, is_local_name, is_open
from kenthash.service.errors import ApiError, Overloaded, to_api_error
from kenthash.service.metrics import Metrics
from kenthash.service.settings import Settings

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]
CONTENT_POLICY = (
    b"default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
MAX_DISCARDED = 4  # times the size limit: read and discarded, so that a client receives the error
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})
NEVER_REFUSED = ("/healthz", "/readyz", "/metrics")  # for overload


class RequestMiddleware:
    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # start and end of the service; there are no websockets
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        scope["started"] = started = time.perf_counter()
        answer = _Answer(send, scope["path"].startswith("/static/"))
        try:
            await self._process(scope, receive, answer)
        except ClientDisconnect:
            answer.status = answer.status or 499
        except Exception as error:
            api_error = to_api_error(error, scope["method"])
            if api_error.slug == "internal" or answer.status:
                logs.failure("failed", error, method=scope["method"], route=_route(scope))
            if not answer.status:
                await api_error.response()(scope, receive, answer.send)
        self._record(scope, answer, time.perf_counter() - started)

    async def _process(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal.response()(scope, receive, answer.send)
            return
        # Files are sent whole: parts of small pictures are of no use, and a wrong range would be refused in plain text.
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"range"]
        self.in_flight += 1
        self.metrics.in_flight.set(self.in_flight)
        try:
            async with asyncio.timeout(self.settings.seconds) as limit:
                await self.app(scope, _limited(receive, self.settings.max_body), answer.send)
        except TimeoutError:
            if not limit.expired():
                raise
            if not answer.status:
                detail = f"no answer within {self.settings.seconds:g} s: ask for less at once"
                await ApiError("time-limit", detail).response()(scope, receive, answer.send)
        finally:
            self.in_flight -= 1
            self.metrics.in_flight.set(self.in_flight)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers, path, key = Headers(scope=scope), scope["path"], self.settings.key
        if key is None and not is_local_name(headers.get("host", ""), self.settings.host):
            return ApiError("wrong-host", "without a key the service answers to localhost and 127.0.0.1 only")
        if is_foreign(scope["method"], path, headers):
            return ApiError("foreign-page", "the request comes from a page of another site: use the service's own page")
        if key is not None and not is_open(path) and not has_key(headers, key):
            detail = "send the service's key as `Authorization: Bearer KEY`"
            return ApiError("key-required", detail, {"WWW-Authenticate": "Bearer"})
        if self.in_flight >= self.settings.max_in_flight and path not in NEVER_REFUSED:
            self.metrics.refused.inc()
            return Overloaded()
        return None

    def _record(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        route, method = _route(scope), scope["method"]
        self.metrics.answered(method if method in METHODS else "other", route, answer.status, seconds)
        query: dict[str, Any] = {"query": scope["query"]} if "query" in scope else {}
        logs.info(
            "request",
            method=method[:16],
            route=route,
            status=answer.status,
            ms=round(1e3 * seconds, 2),
            bytes=answer.bytes,
            **query,
        )


class _Answer:
    """Passes an answer on with our headers, and counts its bytes."""

    def __init__(self, send: Send, static: bool) -> None:
        self._send, self._static = send, static  # static files may be cached, and are requested by their ETag
        self.status = self.bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = list(message["headers"])
            names = {name for name, _ in own}
            caching = (b"cache-control", b"no-cache" if self._static else b"no-store")
            defaults = [
                default
                for default in ((b"content-security-policy", CONTENT_POLICY), caching)
                if default[0] not in names
            ]
            message["headers"] = own + HEADERS + defaults
        elif message["type"] == "http.response.body":
            self.bytes += len(message.get("body", b""))
        await self._send(message)


def _limited(receive: Receive, max_bytes: int) -> Receive:
    """Limit the size of a body, whatever its Content-Length says. Somewhat more than allowed is read before the request
    is refused, since many clients cannot read an answer while they send."""
    total = 0

    async def limited() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total <= max_bytes:
            return message
        while message.get("more_body") and total <= MAX_DISCARDED * max_bytes:
            message = await receive()
            total += len(message.get("body", b""))
        raise ApiError("too-large", f"more than {max_bytes >> 20} MiB: send a smaller picture", {"Connection": "close"})

    return limited


def _route(scope: Scope) -> str:
    """The pattern of the address, without the ids in it."""
    return getattr(scope.get("route"), "path", None) or ("/static" if scope["path"].startswith("/static/") else "none")
