"""PUT and DELETE /items, where the service has been told that it may."""

import asyncio
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from kenthash.codes import Codes
from kenthash.errors import DataError
from kenthash.search import Item
from kenthash.search.engine import Metadata, coded_texts
from kenthash.search.index import MAX_ID, check_metadata
from kenthash.service.batching import Code
from kenthash.service.files import OURS
from kenthash.service.find import is_id, item_answer
from kenthash.service.problems import Problem, responses
from kenthash.service.reading import Form, read, validated
from kenthash.service.routes_items import answer
from kenthash.service.schemas import ItemAnswer, ItemFields, NewItem
from kenthash.service.service import Service
from kenthash.service.state import Served

ERRORS = ("malformed", "read-only", "not-found", "old-codes", "too-large", "media-type", "invalid")


def _body() -> dict[str, Any]:
    form = {
        "type": "object",
        "required": ["image"],
        "additionalProperties": False,
        "properties": {
            "image": {"type": "string", "format": "binary"},
            "metadata": {"type": "string", "description": "A JSON object"},
        },
    }
    content = {
        "application/json": {"schema": NewItem.model_json_schema()},
        "multipart/form-data": {"schema": form},
    }
    return {"requestBody": {"required": True, "content": content}}


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["items"])

    def check_writable() -> None:
        if not service.settings.writable:
            raise Problem("read-only", "start the service with --writable to change items through it")

    @routes.put(
        "/items/{id:path}",
        response_model=ItemAnswer,
        responses={201: {"model": ItemAnswer, "description": "A new item"}, **responses(*ERRORS)},
        openapi_extra=_body(),
        summary="Add or replace an item",
    )
    async def put(request: Request, id: str) -> Response:
        """By its code, or encoded from a text or a picture. The picture itself is not kept."""
        check_writable()
        if not is_id(id):
            raise Problem("invalid", f"id: must have 1 to {MAX_ID:,} characters, no control characters among them")
        asked = await read(request, NewItem)
        with service.state.use() as served:
            metadata = _metadata(asked)
            code = await _code(served, asked)
            texts = await _text_codes(served, metadata)
            item, new = await service.searchers.run(_put, served, id, code, metadata, texts)
        return answer(item_answer(item), 201 if new else 200)

    @routes.delete(
        "/items/{id:path}",
        status_code=204,
        responses=responses("read-only", "not-found"),
        summary="Remove an item",
    )
    async def delete(id: str) -> Response:
        check_writable()
        with service.state.use() as served:
            removed = await service.searchers.run(_remove, served, id)
        if not removed:
            raise Problem("not-found", "there is no item with this id")
        return Response(None, 204)

    return routes


def _metadata(asked: NewItem | Form) -> Metadata:
    """Checked as the index would, so that what it then refuses is no fault of the request."""
    if isinstance(asked, Form):
        told = validated(ItemFields, asked.fields).metadata
        try:
            metadata = orjson.loads(told)
        except orjson.JSONDecodeError as error:
            raise Problem("invalid", f"metadata: not valid JSON: {error}") from error
    else:
        metadata = asked.metadata
    try:
        check_metadata("the item", metadata)
    except DataError as error:
        raise Problem("invalid", str(error)) from error
    if taken := [key for key in OURS if key in metadata]:
        raise Problem("invalid", f"metadata: {taken[0]} is set by `kenthash index add` alone")
    checked: Metadata = metadata
    return checked


async def _code(served: Served, asked: NewItem | Form) -> Code:
    if isinstance(asked, Form):
        if not asked.image:
            raise Problem("invalid", "image: send the picture's content as a file part called `image`")
        if served.warning is not None:  # a code of this version beside others
            raise Problem("old-codes", served.warning)
        return await served.encoding.picture(asked.image)
    if asked.text is not None:
        return await served.encoding.text(asked.text)
    code = np.frombuffer(bytes.fromhex(asked.code or ""), np.uint8)
    if len(code) * 8 != served.index.bits:
        raise Problem("invalid", f"code: {len(code)} bytes; this index takes {served.index.bits // 8}")
    return code


async def _text_codes(served: Served, metadata: Metadata) -> Codes | None:
    """The codes of an item's texts, for an index that has some."""
    texts = coded_texts(metadata)
    if not texts or not served.keeps_texts or not served.encoding.able:
        return None
    return np.stack(await asyncio.gather(*(served.encoding.text(text) for text in texts)))


def _put(served: Served, id: str, code: Code, metadata: Metadata, texts: Codes | None) -> tuple[Item, bool]:
    """What `index add` noted of the picture stays with it."""
    with served.held():
        old = served.index.get([id])[0]
        kept = {key: old.metadata[key] for key in OURS if key in old.metadata} if old else {}
        item = Item(id, code, {**metadata, **kept})
        served.index.upsert([id], code[None], [item.metadata])
        if texts is not None:
            served.index.put_texts([item], [texts])
        served.refresh()
        return item, old is None


def _remove(served: Served, id: str) -> int:
    with served.held():
        removed = served.index.remove([id]) if is_id(id) else 0
        if removed:
            served.refresh()
        return removed
