"""POST /search."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kenthash.errors import UsageError
from kenthash.search import Hits
from kenthash.search.engine import Metadata, texts_of
from kenthash.search.filters import Filter, parse
from kenthash.search.index import MAX_K, NO_TEXTS
from kenthash.service.encoding import Code
from kenthash.service.errors import ApiError, error_responses
from kenthash.service.routes_items import get_item, has_image, public
from kenthash.service.schemas import Answer, JsonOrForm, SearchForm, SearchOptions, SearchQuery
from kenthash.service.state import OpenIndex, service_of


class _RequestRoute(APIRoute):
    """Calls the endpoint with the request alone. FastAPI would look for parameters and dependencies, of which there are
    none, and close what they opened; that takes several per cent of the processor time of a search."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await super().handle(scope, receive, send)  # status 405
            return
        response: Response = await self.endpoint(Request(scope, receive))
        await response(scope, receive, send)


router = APIRouter(tags=["search"], route_class=_RequestRoute)
BODY = JsonOrForm(SearchQuery, SearchForm)


@router.post(
    "/search",
    response_model=Answer,
    responses=error_responses("malformed", "not-found", "too-large", "media-type", "invalid"),
    openapi_extra=BODY.openapi,
    summary="Find items",
)
async def search(request: Request) -> Response:
    """The items nearest to words, to a picture, or to an item of the index: exact, nearest first, then by id."""
    service = service_of(request)
    query = await BODY.read(request)
    with service.state.use() as current:
        where = _check(current, query)
        start = time.perf_counter()
        kind, subject = await _subject(current, query)
        encode_seconds = time.perf_counter() - start
        if service.settings.log_queries:
            request.scope["query"] = _loggable(query)
        body, seconds, looked_at = await service.searchers.run(
            _find, current, kind, subject, query, where, request.scope["started"], encode_seconds
        )
    service.metrics.search_seconds.observe(seconds)
    service.metrics.looked_at.inc(looked_at or 0)
    return Response(body, media_type="application/json")


def _check(current: OpenIndex, options: SearchOptions) -> Filter | None:
    """Checks that need the index. Returns the parsed filter."""
    if options.radius is not None and options.radius > current.index.bits:
        raise ApiError("invalid", f"radius: must be from 0 to the {current.index.bits} bits of the index")
    if options.find == "texts" and not current.has_texts:
        raise ApiError("invalid", f"find: {NO_TEXTS}")
    try:
        return parse(options.filter) if options.filter else None
    except UsageError as error:
        raise ApiError("invalid", str(error)) from error


async def _subject(current: OpenIndex, query: SearchQuery | SearchForm) -> tuple[str, Code | str]:
    """The kind of the query, and its code or the id of the item that has it."""
    if isinstance(query, SearchForm):
        return "image", await current.encoder.picture(query.image)
    if query.id is not None:
        return "id", query.id
    assert query.text is not None
    return "text", await current.encoder.text(query.text)


def _loggable(query: SearchQuery | SearchForm) -> dict[str, object]:
    fields = query.model_dump(exclude_none=True)
    return fields | {"image": len(query.image)} if isinstance(query, SearchForm) else fields


def _find(
    current: OpenIndex,
    kind: str,
    subject: Code | str,
    options: SearchOptions,
    where: Filter | None,
    started: float,
    encode_seconds: float,
) -> tuple[bytes, float, int | None]:
    """The answer as JSON, the seconds in the engine, and how many codes it compared. Run by a worker thread. An item
    that is the query is not among its own hits."""
    with current.in_use():
        start = time.perf_counter()
        own_id = subject if isinstance(subject, str) else None
        code = get_item(current, own_id).code if own_id is not None else np.asarray(subject)
        needed = options.offset + options.k + 1 + (own_id is not None)
        engine_search = current.index.search_texts if options.find == "texts" else current.index.search
        hits = engine_search(code[None], min(needed, MAX_K), options.radius, where)[0]
        page = [hit for hit in _hits_of(hits) if hit.id != own_id][options.offset :]
        more, page = len(page) > options.k, page[: options.k]
        hit_answers = [_hit_answer(hit) for hit in _with_codes(current, page)]
        now = time.perf_counter()
        answer = {
            "hits": hit_answers,
            "query": {"kind": kind, "code": code.tobytes().hex(), "bits": current.index.bits},
            "offset": options.offset,
            "k": options.k,
            "more": more,
            "timing": {
                "encode_ms": round(1e3 * encode_seconds, 3),
                "search_ms": round(1e3 * (now - start), 3),
                "total_ms": round(1e3 * (now - started), 3),
            },
            "looked_at": hits.looked_at,
            "items": current.stats.items,
            "bytes_per_item": current.index.bits // 8,
        }
        return orjson.dumps(answer), now - start, hits.looked_at


class _Hit(NamedTuple):
    id: str
    distance: int
    metadata: Metadata
    code: bytes
    text: str | None  # the nearest of its texts, where texts were compared


def _hits_of(hits: Hits) -> list[_Hit]:
    if hits.codes is None:
        codes = [b""] * len(hits)
    else:
        packed, size = hits.codes.tobytes(), hits.codes.shape[1]
        codes = [packed[start : start + size] for start in range(0, len(packed), size)]
    texts: Sequence[str | None] = hits.texts or [None] * len(hits)
    return list(map(_Hit, hits.ids, hits.distances.tolist(), hits.metadata, codes, texts))


def _with_codes(current: OpenIndex, page: list[_Hit]) -> list[_Hit]:
    """Some engines return hits without codes, which are then requested; items removed meanwhile are left out."""
    if all(hit.code for hit in page):
        return page
    items = current.index.get([hit.id for hit in page])
    return [hit._replace(code=item.code.tobytes()) for hit, item in zip(page, items, strict=True) if item is not None]


def _hit_answer(hit: _Hit) -> dict[str, Any]:
    labels, texts = hit.metadata.get("labels"), texts_of(hit.metadata)
    return {
        "id": hit.id,
        "distance": hit.distance,
        "code": hit.code.hex(),
        "labels": labels if isinstance(labels, list) else [],
        "text": hit.text or (texts[0] if texts else None),
        "metadata": public(hit.metadata),
        "has_image": has_image(hit.metadata),
    }
