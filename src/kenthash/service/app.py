"""The application: routes, middleware, and its description at /openapi.json and /docs."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from kenthash import __version__
from kenthash.service import routes_about, routes_items, routes_search
from kenthash.service.errors import ProblemModel, error_responses
from kenthash.service.middleware import RequestMiddleware
from kenthash.service.state import Service
from kenthash.service.watch import watching

TITLE = "kenthash"
DESCRIPTION = (
    "Text and picture search by short binary codes. Errors are `application/problem+json`. A service with a key takes "
    "it as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
)
ERRORS_OF_ALL_ROUTES = ("malformed", "key-required", "foreign-page", "wrong-host", "overloaded", "time-limit")
UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")  # FastAPI's own form of errors


class _App(FastAPI):
    def build_middleware_stack(self) -> ASGIApp:
        """`RequestMiddleware` in place of the framework's layers for errors, which take time in every request."""
        service: Service = self.state.service
        return RequestMiddleware(AsyncExitStackMiddleware(self.router), service.settings, service.metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As Starlette's, without FastAPI's telemetry, which reads the environment in every request."""
        scope["app"] = self
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        await self.middleware_stack(scope, receive, send)


def make_app(service: Service) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with watching(service):
            yield
        service.close()

    app = _App(title=TITLE, version=__version__, description=DESCRIPTION, lifespan=lifespan, openapi_url=None,
               docs_url=None, redoc_url=None, redirect_slashes=False)  # fmt: skip
    app.state.service = service
    app.router.routes.extend(_routes())  # `include_router` would match every request twice
    app.mount("/static", StaticFiles(directory=routes_about.STATIC, check_dir=False), "static")
    description = describe_routes()

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(description)

    @app.get("/docs", include_in_schema=False)
    async def documentation() -> HTMLResponse:
        return HTMLResponse(_docs_page(description))

    return app


def _routes() -> list[BaseRoute]:
    return [*routes_search.router.routes, *routes_items.router.routes, *routes_about.router.routes]


@cache
def describe_routes() -> dict[str, Any]:
    """FastAPI's OpenAPI description, with the errors that every route has. It is the same for every service. Writing it
    uses several megabytes of memory, so workers share that of the process which they were forked from."""
    description = get_openapi(title=TITLE, version=__version__, description=DESCRIPTION, routes=_routes())
    schemas = description["components"]["schemas"]
    for name in UNUSED_SCHEMAS:
        schemas.pop(name, None)
    schemas["ProblemModel"] = ProblemModel.model_json_schema()
    common = {str(status): response for status, response in error_responses(*ERRORS_OF_ALL_ROUTES).items()}
    for operations in description["paths"].values():
        for operation in operations.values():
            operation["responses"] = common | operation["responses"]
            if "422" in operation["responses"]:
                operation["responses"]["422"] = error_responses("invalid")[422]
    description["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    return description


def _docs_page(openapi: dict[str, Any]) -> str:
    """The description as one plain page, which needs no script and nothing from elsewhere."""
    info = openapi["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])} API</title><h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info['description'])}</p>",
        "<p><a href=/openapi.json>openapi.json</a> is the same for programs.</p>",
    ]
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            parts += _docs_of_operation(method.upper(), path, operation)
    parts.append("<h2>Schemas</h2>")
    for name, schema in openapi["components"]["schemas"].items():
        parts.append(f"<h3 id='{escape(name)}'>{escape(name)}</h3>{_docs_of_schema(schema)}")
    return "\n".join(parts)


def _docs_of_operation(method: str, path: str, operation: dict[str, Any]) -> list[str]:
    parts = [f"<h2><code>{method} {escape(path)}</code></h2>", f"<p>{escape(operation.get('summary', ''))}</p>"]
    if "description" in operation:
        parts.append(f"<p>{escape(operation['description'])}</p>")
    if parameters := operation.get("parameters"):
        rows = [
            f"<li><code>{escape(parameter['name'])}</code> ({parameter['in']}) "
            f"{escape(parameter.get('description', ''))}"
            for parameter in parameters
        ]
        parts.append(f"<ul>{''.join(rows)}</ul>")
    for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body, <code>{escape(media_type)}</code>:</p>{_docs_of_schema(body['schema'])}")
    rows = [f"<li>{status}: {_docs_of_response(response)}" for status, response in operation["responses"].items()]
    parts.append(f"<p>Answers:</p><ul>{''.join(rows)}</ul>")
    return parts


def _docs_of_response(response: dict[str, Any]) -> str:
    links = [
        f"<code>{escape(media_type)}</code> <a href='#{name}'>{name}</a>"
        for media_type, content in response.get("content", {}).items()
        if (name := escape(str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]))
    ]
    return " ".join([escape(response["description"]), *links])


def _docs_of_schema(schema: dict[str, Any]) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=1))}</pre>"
