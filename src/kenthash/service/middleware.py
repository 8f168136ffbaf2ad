"""The middleware around every request: host name, origin, key, and limits on concurrency, size and time before it is
processed; then errors as answers, headers, metrics and one line in the log.

A request is processed, and counts as such, once its body is there: those whose bodies are still coming hold up nobody.
There is a limit to these as well; one more ends the request whose body would take the longest.
"""

import asyncio
import time
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kenthash.service import logs
from kenthash.service.auth import has_key, is_foreign, is_local_name, is_open
from kenthash.service.errors import ApiError, Overloaded, to_api_error
from kenthash.service.metrics import Metrics
from kenthash.service.settings import ServiceSettings

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
WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
FIRST_RATE = 1 << 20  # bytes per second that a body is taken to come with until more is known
MAX_DISCARDED = 4  # times the size limit: read and discarded, so that a client receives the error
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})
NEVER_REFUSED = ("/healthz", "/readyz", "/metrics")  # for overload


class RequestMiddleware:
    def __init__(self, app: ASGIApp, settings: ServiceSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.in_flight = 0
        self.receiving: set[_Body] = set()
        if not metrics.shared:
            metrics.in_flight.set_function(lambda: self.in_flight)

    def report_in_flight(self) -> None:
        """Where several workers count together: the number of one can be looked at when it is asked for."""
        if self.metrics.shared:
            self.metrics.in_flight.set(self.in_flight)

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
        try:
            async with asyncio.timeout(self.settings.seconds) as limit:
                with _Body(self, scope, receive, limit) as body:
                    await self.app(scope, body.receive, answer.send)
        except TimeoutError:
            if not limit.expired():
                raise
            if not answer.status:
                await body.timeout_error().response()(scope, receive, answer.send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers, path, key = Headers(scope=scope), scope["path"], self.settings.key
        if key is None and not is_local_name(headers.get("host", ""), self.settings.host):
            return ApiError("wrong-host", "without a key the service answers to localhost and 127.0.0.1 only")
        if is_foreign(scope["method"], path, headers):
            return ApiError("foreign-page", "the request comes from a page of another site: use the service's own page")
        if key is not None and not is_open(path) and not has_key(headers, key):
            detail = "send the service's key as `Authorization: Bearer KEY`"
            return ApiError("key-required", detail, {"WWW-Authenticate": "Bearer"})
        if not _is_utf8(scope):
            return ApiError("malformed", "the address is not UTF-8: percent-encode the bytes of its UTF-8")
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


class _Body:
    """The body of a request: limited in size, whatever its Content-Length says. From when it is there, or at once where
    the method has none, until the end of the `with` block the request counts as processed."""

    def __init__(self, requests: RequestMiddleware, scope: Scope, receive: Receive, limit: asyncio.Timeout) -> None:
        self._requests, self._scope, self._receive, self._limit = requests, scope, receive, limit
        self._start, self._size = time.monotonic(), 0
        self._processed = self._ended = False

    def __enter__(self) -> "_Body":
        if self._scope["method"] in WITHOUT_BODY:
            self._begin_processing()
        return self

    def __exit__(self, *error: object) -> None:
        self._requests.receiving.discard(self)
        self._requests.in_flight -= self._processed
        self._requests.report_in_flight()

    async def receive(self) -> Message:
        if self._processed:
            return await self._receive()
        wait = asyncio.get_running_loop().call_soon(self._wait)  # which happens if it is not here yet
        try:
            message = await self._receive()
        finally:
            wait.cancel()
        self._size += len(message.get("body", b""))
        if self._size > self._requests.settings.max_body:
            await self._refuse(message)
        if message["type"] == "http.request" and not message.get("more_body"):
            self._requests.receiving.discard(self)
            self._begin_processing()
        return message

    def timeout_error(self) -> ApiError:
        if self._ended:
            error: ApiError = Overloaded("the body takes too long while others wait: try again later")
        else:
            detail = f"no answer within {self._requests.settings.seconds:g} s: ask for less at once"
            error = ApiError("time-limit", detail)
        if not self._processed:
            error.headers["Connection"] = "close"  # or the rest of the body would be awaited
        return error

    def _begin_processing(self) -> None:
        requests = self._requests
        if requests.in_flight >= requests.settings.max_in_flight and self._scope["path"] not in NEVER_REFUSED:
            requests.metrics.refused.inc()
            raise Overloaded
        self._processed = True
        requests.in_flight += 1
        requests.report_in_flight()

    async def _refuse(self, message: Message) -> None:
        """Somewhat more than allowed is read first, since many clients cannot read an answer while they send."""
        max_bytes = self._requests.settings.max_body
        while message.get("more_body") and self._size <= MAX_DISCARDED * max_bytes:
            message = await self._receive()
            self._size += len(message.get("body", b""))
        raise ApiError("too-large", f"more than {max_bytes >> 20} MiB: send a smaller picture", {"Connection": "close"})

    def _wait(self) -> None:
        receiving = self._requests.receiving
        receiving.add(self)
        if len(receiving) > self._requests.settings.max_in_flight:
            max(receiving, key=_Body._seconds)._end()

    def _seconds(self) -> float:
        """What the body takes in all if it goes on as it came so far; without a length it may be as long as is allowed.
        So an endless body takes longer than a small one of which nothing is there yet, however fast it comes."""
        length, most = Headers(scope=self._scope).get("content-length", ""), self._requests.settings.max_body
        passed = time.monotonic() - self._start
        rate = (self._size + FIRST_RATE) / (passed + 1)
        size = min(int(length), most) if length.isdecimal() else most
        return passed + max(size - self._size, 0) / rate

    def _end(self) -> None:
        """Let the request end now, as if its time were up."""
        self._ended = True
        self._requests.receiving.discard(self)
        self._requests.metrics.refused.inc()
        if not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())


def _is_utf8(scope: Scope) -> bool:
    """Whether the address can be decoded. The framework would put U+FFFD for what cannot, so that different ids became
    one."""
    if "\ufffd" not in scope["path"]:
        return True
    try:
        unquote_to_bytes(scope.get("raw_path") or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _route(scope: Scope) -> str:
    """The pattern of the address, without the ids in it."""
    return getattr(scope.get("route"), "path", None) or ("/static" if scope["path"].startswith("/static/") else "none")
