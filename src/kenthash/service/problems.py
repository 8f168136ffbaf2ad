"""Errors as answers: application/problem+json (RFC 9457), each with a type, and a detail that says what to do."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from kenthash.errors import KenthashError
from kenthash.service import logs

MEDIA_TYPE = "application/problem+json"

TITLES = {
    "malformed": (400, "The request cannot be read"),
    "key-required": (401, "A key is required"),
    "foreign-page": (403, "A page of another site may not ask"),
    "read-only": (403, "The service is read-only"),
    "not-found": (404, "There is no such thing"),
    "method-not-allowed": (405, "This cannot be done here"),
    "old-codes": (409, "The index holds codes of another version"),
    "too-large": (413, "The request is too large"),
    "media-type": (415, "The media type is not understood"),
    "wrong-host": (421, "The service does not answer under this name"),
    "invalid": (422, "A value is not valid"),
    "bad-picture": (422, "The picture cannot be used"),
    "no-encoder": (422, "The model cannot read this"),
    "internal": (500, "The service failed"),
    "overloaded": (503, "The service has too much to do"),
    "not-ready": (503, "The service is not ready"),
    "index-unavailable": (503, "The index does not answer"),
    "time-limit": (504, "The request took too long"),
}


class ProblemModel(BaseModel):
    """An error: RFC 9457."""

    type: str
    title: str
    status: int
    detail: str


class Problem(Exception):
    def __init__(self, slug: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.slug, self.detail, self.headers = slug, " ".join(detail.split()), dict(headers or {})
        self.status, self.title = TITLES[slug]

    def response(self) -> Response:
        body = {"type": f"/errors/{self.slug}", "title": self.title, "status": self.status, "detail": self.detail}
        return Response(_json(body), self.status, self.headers, MEDIA_TYPE)


class Overloaded(Problem):
    """There is no room for this request now; there will be."""

    def __init__(self, detail: str = "too many requests at once: try again in a second") -> None:
        super().__init__("overloaded", detail, {"Retry-After": "1"})


def invalid(error: ValidationError | RequestValidationError) -> Problem:
    """The first of the values that are wrong, in one line; what cannot be read at all is malformed, not invalid."""
    first = error.errors()[0]
    slug = "malformed" if first["type"] == "json_invalid" else "invalid"
    return Problem(slug, f"{_place(first['loc'])}{first['msg']}")


def install(app: FastAPI) -> None:
    """Every error of the framework, and every one that escapes, as a problem."""

    async def handler(request: Request, error: Exception) -> Response:
        return problem_of(error, request.method).response()

    for kind in (Problem, RequestValidationError, HTTPException, KenthashError, Exception):
        app.add_exception_handler(kind, handler)


def problem_of(error: Exception, method: str) -> Problem:
    """What a request that ended in an error is told."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        return invalid(error)
    if isinstance(error, HTTPException):
        return of_status(error.status_code, method, error.headers)
    if isinstance(error, KenthashError):
        # What a request can get wrong has been checked before the engine was asked: this is a disk, a lock, a server.
        logs.warning("index unavailable", error=str(error))
        detail = "the index could not be read or written just now: try again; the log says why"
        return Problem("index-unavailable", detail, {"Retry-After": "5"})
    return Problem("internal", "an error of ours, not of the request: the log has the details")


def of_status(status: int, method: str, headers: Mapping[str, str] | None) -> Problem:
    if status == 404:
        return Problem("not-found", "there is nothing at this address: /docs lists the addresses", headers)
    if status == 405:
        return Problem("method-not-allowed", f"{method} is not understood here: /docs says what is", headers)
    return Problem("malformed", "the request cannot be read: /docs says what it has to look like", headers)


def responses(*slugs: str) -> dict[int | str, dict[str, Any]]:
    """What a route's OpenAPI says of these errors."""
    schema = {"$ref": "#/components/schemas/ProblemModel"}
    told: dict[int | str, dict[str, Any]] = {}
    for slug in slugs:
        status, title = TITLES[slug]
        told[status] = {"description": title, "content": {MEDIA_TYPE: {"schema": schema}}}
    return told


def _place(location: Sequence[str | int]) -> str:
    names = [str(part) for part in location if part not in ("body", "query", "path")]
    return f"{'.'.join(names)[:60]}: " if names else ""


def _json(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # half a character, from a query or a path
        return str(value).encode("ascii", "backslashreplace")
