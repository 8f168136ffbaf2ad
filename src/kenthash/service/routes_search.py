"""POST /search."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kenthash.codes import pack
from kenthash.errors import UsageError
from kenthash.search.answer import CLOSE, Answer, NoRelevance, Query, ScoredHit, answer_query
from kenthash.search.engine import texts_of
from kenthash.search.filters import Filter, parse
from kenthash.search.index import MAX_K, NO_TEXTS
from kenthash.search.metadata import check_public, public
from kenthash.service.encoding import Output
from kenthash.service.errors import ApiError, error_responses
from kenthash.service.routes_items import get_item
from kenthash.service.schemas import Answer as AnswerBody
from kenthash.service.schemas import JsonOrForm, SearchForm, SearchOptions, SearchQuery
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
    response_model=AnswerBody,
    responses=error_responses("malformed", "not-found", "too-large", "media-type", "invalid"),
    openapi_extra=BODY.openapi,
    summary="Find items",
)
async def search(request: Request) -> Response:
    """The items nearest to words, to a picture, or to an item of the index, nearest first, then by id. Words can be
    added (`plus`) and taken away (`without`). Bits count by how sure the model is of them. Items with all the words in
    their names, texts or labels come first."""
    service = service_of(request)
    query = await BODY.read(request)
    with service.served.use() as current:
        where = _check(current, query)
        start = time.perf_counter()
        encoded = await _encoded_query(current, query)
        encode_seconds = time.perf_counter() - start
        if service.settings.log_queries:
            request.scope["query"] = _loggable(query)
        try:
            body, seconds, looked_at = await service.searchers.run(
                _find, current, encoded, query, where, request.scope["started"], encode_seconds
            )
        except NoRelevance as error:
            raise ApiError("invalid", str(error)) from error
    service.metrics.search_seconds.observe(seconds)
    service.metrics.looked_at.inc(looked_at or 0)
    return Response(body, media_type="application/json")


def _check(current: OpenIndex, options: SearchOptions) -> Filter | None:
    """Checks that need the index. Returns the parsed filter."""
    if options.radius is not None and options.radius > current.index.code_bits:
        raise ApiError("invalid", f"radius: must be from 0 to the {current.index.code_bits} bits of the index")
    if options.find == "texts" and not current.has_texts:
        raise ApiError("invalid", f"find: {NO_TEXTS}")
    if not options.filter:
        return None
    try:
        where = parse(options.filter)
        check_public(where)
    except UsageError as error:
        raise ApiError("invalid", str(error)) from error
    return where


class _EncodedQuery(NamedTuple):
    """What is looked for: an item of the index, or the real-valued output of words or of a picture; and more."""

    kind: str
    id: str | None
    words: str | None
    output: Output | None
    plus: list[Output]
    without: list[Output]

    def query(self, current: OpenIndex) -> Query:
        first = get_item(current, self.id).code if self.id is not None else self.output
        assert first is not None
        known = self.words is None or current.encoder.hasher.knows(self.words)
        return Query(first, self.words, known, self.id, self.plus, self.without)


async def _encoded_query(current: OpenIndex, query: SearchQuery | SearchForm) -> _EncodedQuery:
    outputs = await asyncio.gather(*(current.encoder.text(words) for words in (*query.plus, *query.without)))
    plus, without = outputs[: len(query.plus)], outputs[len(query.plus) :]
    if isinstance(query, SearchForm):
        return _EncodedQuery("image", None, None, await current.encoder.picture(query.image), plus, without)
    if query.id is not None:
        return _EncodedQuery("id", query.id, None, None, plus, without)
    assert query.text is not None
    return _EncodedQuery("text", None, query.text, await current.encoder.text(query.text), plus, without)


def _loggable(query: SearchQuery | SearchForm) -> dict[str, object]:
    fields = query.model_dump(exclude_none=True)
    return fields | {"image": len(query.image)} if isinstance(query, SearchForm) else fields


def _find(
    current: OpenIndex,
    encoded: _EncodedQuery,
    options: SearchOptions,
    where: Filter | None,
    started: float,
    encode_seconds: float,
) -> tuple[bytes, float, int | None]:
    """The answer as JSON, the seconds in the engine, and how many codes it compared. Run by a worker thread."""
    with current.in_use():
        start = time.perf_counter()
        query = encoded.query(current)
        outputs = query.outputs()
        code = outputs if outputs.dtype == np.uint8 else pack(outputs)
        answer = answer_query(
            current.index,
            query,
            min(options.offset + options.k + 1, MAX_K),
            options.radius,
            where,
            current.encoder.hasher.relevance,
            options.min_relevance,
            options.find == "texts",
            current.stats.items,
        )
        page = _page_hits(answer)[options.offset :]
        more, page = len(page) > options.k, page[: options.k]
        hit_answers = [_hit_answer(current, hit) for hit in _with_codes(current, page)]
        now = time.perf_counter()
        body = {
            "hits": hit_answers,
            "query": {"kind": encoded.kind, "code": code.tobytes().hex(), "bits": current.index.code_bits},
            "offset": options.offset,
            "k": options.k,
            "more": more,
            "close": None if answer.relevance is None else sum(map(_is_close, page)),
            "timing": {
                "encode_ms": round(1e3 * encode_seconds, 3),
                "search_ms": round(1e3 * (now - start), 3),
                "total_ms": round(1e3 * (now - started), 3),
            },
            "proven": answer.hits.proven,
            "looked_at": answer.hits.looked_at,
            "items": current.stats.items,
            "bytes_per_item": current.index.code_bits // 8,
        }
        return orjson.dumps(body), now - start, answer.hits.looked_at


class _PageHit(NamedTuple):
    hit: ScoredHit
    code: bytes
    text: str | None  # the nearest of its texts, where texts were compared


def _page_hits(answer: Answer) -> list[_PageHit]:
    hits = answer.hits
    if hits.codes is None:
        codes = [b""] * len(hits)
    else:
        packed, size = hits.codes.tobytes(), hits.codes.shape[1]
        codes = [packed[start : start + size] for start in range(0, len(packed), size)]
    texts: Sequence[str | None] = hits.texts or [None] * len(hits)
    return list(map(_PageHit, answer, codes, texts))


def _is_close(page_hit: _PageHit) -> bool:
    hit = page_hit.hit
    return hit.by_words or (hit.relevance is not None and hit.relevance >= CLOSE)


def _with_codes(current: OpenIndex, page: list[_PageHit]) -> list[_PageHit]:
    """Some engines return hits without codes, which are then requested; items removed meanwhile are left out."""
    if all(hit.code for hit in page):
        return page
    items = current.index.get([hit.hit.id for hit in page])
    return [hit._replace(code=item.code.tobytes()) for hit, item in zip(page, items, strict=True) if item is not None]


def _hit_answer(current: OpenIndex, page_hit: _PageHit) -> dict[str, Any]:
    hit, text = page_hit.hit, page_hit.text
    metadata = hit.metadata
    labels = metadata.get("labels")
    if not text and ("text" in metadata or "texts" in metadata):
        text = next(iter(texts_of(metadata)), None)
    return {
        "id": hit.id,
        "distance": hit.distance,
        "weighted": round(hit.weighted, 4),
        "relevance": None if hit.relevance is None else round(hit.relevance, 4),
        "by_words": hit.by_words,
        "code": page_hit.code.hex(),
        "labels": labels if isinstance(labels, list) else [],
        "text": text,
        "metadata": public(metadata),
        "has_image": current.roots.has_file(hit.id, metadata),
    }
