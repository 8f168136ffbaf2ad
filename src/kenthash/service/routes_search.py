"""POST /search."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from kenthash.errors import UsageError
from kenthash.search.filters import Filter, parse
from kenthash.search.index import NO_TEXTS
from kenthash.service.batching import Code
from kenthash.service.find import find
from kenthash.service.problems import Problem, responses
from kenthash.service.reading import Form, read, validated
from kenthash.service.schemas import Answer, Options, Query
from kenthash.service.service import Service
from kenthash.service.state import Served

PATH = "/search"


def _body() -> dict[str, Any]:
    """OpenAPI of the body, which is read by hand: JSON, or the same options with a picture."""
    form = Options.model_json_schema()
    form["properties"] = {"image": {"type": "string", "format": "binary"}, **form["properties"]}
    form["required"] = ["image"]
    content = {
        "application/json": {"schema": Query.model_json_schema()},
        "multipart/form-data": {"schema": form},
    }
    return {"requestBody": {"required": True, "content": content}}


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["search"])
    errors = ("malformed", "not-found", "too-large", "media-type", "invalid")
    routes.add_api_route(
        PATH,
        endpoint(service),
        methods=["POST"],
        response_model=Answer,
        responses=responses(*errors),
        openapi_extra=_body(),
        summary="Find items",
    )
    return routes


def endpoint(service: Service) -> Callable[[Request], Awaitable[Response]]:
    async def search(request: Request) -> Response:
        """The items nearest to words, to a picture, or to an item of the index: exact, nearest first, then by id."""
        started = time.perf_counter()
        asked = await read(request, Query)
        options = validated(Options, asked.fields) if isinstance(asked, Form) else asked
        with service.state.use() as served:
            where = _check(served, options)
            begun = time.perf_counter()
            kind, query, told = await _query(served, asked)
            encode = time.perf_counter() - begun
            if service.settings.log_queries:
                request.scope["query"] = told | options.model_dump(exclude_none=True)
            body, seconds, looked_at = await service.searchers.run(
                find, served, kind, query, options, where, started, encode
            )
        service.metrics.search_seconds.observe(seconds)
        service.metrics.looked_at.inc(looked_at or 0)
        return Response(body, media_type="application/json")

    return search


async def _query(served: Served, asked: Query | Form) -> tuple[str, Code | str, dict[str, object]]:
    """Its kind, its code (or the id of the item that has it), and what a log may tell of it if asked to."""
    if isinstance(asked, Form):
        if not asked.image:
            raise Problem("invalid", "image: send the picture's content as a file part called `image`")
        return "image", await served.encoding.picture(asked.image), {"image": len(asked.image)}
    if asked.id is not None:
        return "id", asked.id, {}
    assert asked.text is not None
    return "text", await served.encoding.text(asked.text), {}


def _check(served: Served, options: Options) -> Filter | None:
    """What can be said about the options only with the index at hand. The filter, parsed."""
    if options.radius is not None and options.radius > served.index.bits:
        raise Problem("invalid", f"radius: must be from 0 to the {served.index.bits} bits of the index")
    if options.find == "texts" and not served.has_texts:
        raise Problem("invalid", f"find: {NO_TEXTS}")
    try:
        return None if not options.filter else parse(options.filter)
    except UsageError as error:
        raise Problem("invalid", str(error)) from error
