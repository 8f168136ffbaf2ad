"""The application: routes, errors, and the gate before them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.responses import HTMLResponse, JSONResponse
from starlette.staticfiles import StaticFiles

from kenthash import __version__
from kenthash.service import docs, problems, routes_about, routes_items, routes_search, routes_write
from kenthash.service.gate import Gate
from kenthash.service.openapi import describe
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

    return Gate(app, service.settings, service.metrics)


DESCRIPTION = (
    "Text and picture search by short binary codes. Errors are `application/problem+json`. A service with a key takes "
    "it as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
)
