"""Errors as answers: application/problem+json (RFC 9457), each with a type and a detail that says what to do."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from kenthash.errors import KenthashError
from kenthash.service import logs

MEDIA_TYPE = "application/problem+json"

TYPES = {  # status and title
    "malformed": (400, "The request cannot be read"),
    "key-required": (401, "A key is required"),
    "foreign-page": (403, "Requests from pages of other sites are refused"),
    "read-only": (403, "The service is read-only"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "Method not allowed"),
    "old-codes": (409, "The index holds codes of another version"),
    "too-large": (413, "The request is too large"),
    "media-type": (415, "Unsupported media type"),
    "wrong-host": (421, "The service does not answer under this host name"),
    "invalid": (422, "A value is not valid"),
    "bad-picture": (422, "The picture cannot be used"),
    "no-encoder": (422, "The model cannot encode this query"),
    "internal": (500, "Internal error"),
    "overloaded": (503, "Too many requests at once"),
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


class ApiError(Exception):
    """A request that ends with an error, of one of `TYPES`."""

    def __init__(self, slug: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.slug, self.detail, self.headers = slug, " ".join(detail.split()), dict(headers or {})
        self.status, self.title = TYPES[slug]

    def response(self) -> Response:
        body = {"type": f"/errors/{self.slug}", "title": self.title, "status": self.status, "detail": self.detail}
        return Response(_json(body), self.status, self.headers, MEDIA_TYPE)


class Overloaded(ApiError):
    """The service cannot take this request now, but can soon."""

    def __init__(self, detail: str = "too many requests at once: try again in a second") -> None:
        super().__init__("overloaded", detail, {"Retry-After": "1"})


def to_api_error(error: Exception, method: str) -> ApiError:
    """The answer to a request that ended in an error: of the routes, the framework, the index, or a bug."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        return invalid(error)
    if isinstance(error, HTTPException):
        return _of_status(error.status_code, method, error.headers)
    if isinstance(error, KenthashError):
        # Arguments were checked before the engine was called: this is a failure of a disk, a lock or a server.
        logs.warning("index unavailable", error=str(error))
        detail = "the index could not be read or written: try again; the log has the reason"
        return ApiError("index-unavailable", detail, {"Retry-After": "5"})
    return ApiError("internal", "an error of the service, not of the request: the log has the details")


def invalid(error: ValidationError | RequestValidationError) -> ApiError:
    """The first wrong value, in one line. A body that is not JSON at all is malformed, not invalid."""
    first = error.errors()[0]
    slug = "malformed" if first["type"] == "json_invalid" and not first["loc"] else "invalid"
    return ApiError(slug, f"{_field(first['loc'])}{first['msg']}")


def error_responses(*slugs: str) -> dict[int | str, dict[str, Any]]:
    """These errors in the OpenAPI description of a route."""
    schema = {"$ref": "#/components/schemas/ProblemModel"}
    responses: dict[int | str, dict[str, Any]] = {}
    for slug in slugs:
        status, title = TYPES[slug]
        responses[status] = {"description": title, "content": {MEDIA_TYPE: {"schema": schema}}}
    return responses


def _of_status(status: int, method: str, headers: Mapping[str, str] | None) -> ApiError:
    if status == 404:
        return ApiError("not-found", "not found: /docs lists the addresses", headers)
    if status == 405:
        return ApiError("method-not-allowed", f"{method} is not allowed here: /docs lists the methods", headers)
    return ApiError("malformed", "the request cannot be read: /docs describes its format", headers)


def _field(location: Sequence[str | int]) -> str:
    names = [str(part) for part in location if part not in ("body", "query", "path")]
    return f"{'.'.join(names)[:60]}: " if names else ""


def _json(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # half of a surrogate pair, from a query or a path
        return str(value).encode("ascii", "backslashreplace")
