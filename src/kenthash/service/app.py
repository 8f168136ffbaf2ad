"""The application: routes, errors, and the gate before them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from kenthash import __version__
from kenthash.errors import KenthashError
from kenthash.service import docs, problems, routes_about, routes_items, routes_search, routes_write
from kenthash.service.gate import Gate
from kenthash.service.openapi import describe
from kenthash.service.problems import Problem, problem_of
from kenthash.service.service import Service
from kenthash.service.watch import watching


def make_app(service: Service) -> Gate:
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with watching(service):
            yield
        service.close()

    app = FastAPI(title="kenthash", version=__version__, description=DESCRIPTION, lifespan=life, openapi_url=None,
                  docs_url=None, redoc_url=None, redirect_slashes=False)  # fmt: skip
    problems.install(app)
    for routes in (routes_search, routes_items, routes_write, routes_about):
        app.include_router(routes.router(service))
    app.mount("/static", StaticFiles(directory=routes_about.STATIC, check_dir=False), "static")

    described = describe(app)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(described)

    @app.get("/docs", include_in_schema=False)
    async def documentation() -> HTMLResponse:
        return HTMLResponse(docs.page(described))

    return Gate(_past_layers(app, routes_search.endpoint(service)), service.settings, service.metrics)


def _past_layers(app: FastAPI, search: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    """The application, but that a search goes straight to its route: on the way through the framework's layers, which
    do nothing for it, a request spends twice the time of the route itself."""
    route = Route(routes_search.PATH, search, methods=["POST"])

    async def short(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("POST", route.path):
            await app(scope, receive, send)
            return
        scope["route"] = route
        try:
            response = await search(Request(scope, receive))
        except (Problem, KenthashError) as error:
            response = problem_of(error, "POST").response()
        await response(scope, receive, send)

    return short


DESCRIPTION = (
    "Text and picture search by short binary codes. Errors are `application/problem+json`. A service with a key takes "
    "it as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
)
