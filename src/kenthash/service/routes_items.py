"""/items: single items and their pictures; PUT and DELETE where the service is writable."""

import asyncio
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import FileResponse, Response

from kenthash.codes import Codes, pack
from kenthash.search import Item
from kenthash.search.engine import Metadata, coded_texts
from kenthash.search.metadata import CONTROL, MAX_ID, PRIVATE_KEYS, public
from kenthash.service.errors import ApiError, error_responses
from kenthash.service.pictures import ServedPicture, served_picture
from kenthash.service.schemas import ItemAnswer, JsonOrForm, NewItem, NewItemForm
from kenthash.service.state import OpenIndex, Service, service_of

CACHE_CONTROL = "private, max-age=600"
CONTENT = {"image/*": {"schema": {"type": "string", "format": "binary"}}}
NOT_FOUND = error_responses("not-found")
MAX_NEW_WORDS = 1000  # items whose words a request adds: those of more, from elsewhere, are left to `index add`
PUT_ERRORS = ("malformed", "read-only", "not-found", "old-codes", "too-large", "media-type", "invalid")

router = APIRouter(tags=["items"])
BODY = JsonOrForm(NewItem, NewItemForm)


@router.get(
    "/items/{id:path}/image",
    responses={200: {"content": CONTENT, "description": "The file as it is"}, **NOT_FOUND},
    response_class=Response,
    summary="The original picture",
)
async def image(request: Request, id: str) -> Response:
    service = service_of(request)
    if not _is_literal(request, "image"):
        return await _item_response(service, f"{id}/image")
    with service.served.use() as current:
        picture, media_type = await service.searchers.run(_original, service, current, id)
    headers = {"ETag": picture.etag("original"), "Cache-Control": CACHE_CONTROL, "Content-Security-Policy": "sandbox"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(None, 304, headers)
    return FileResponse(picture.path, headers=headers, media_type=media_type)


@router.get(
    "/items/{id:path}/thumbnail",
    responses={
        200: {"content": {"image/jpeg": CONTENT["image/*"]}, "description": "A small upright JPEG"},
        **NOT_FOUND,
        **error_responses("invalid"),
    },
    response_class=Response,
    summary="A small picture",
)
async def thumbnail(
    request: Request,
    id: str,
    size: Annotated[Literal["128", "256", "512"], Query(description="The longer side")] = "256",
) -> Response:
    service = service_of(request)
    if not _is_literal(request, "thumbnail"):
        return await _item_response(service, f"{id}/thumbnail")
    side = int(size)
    with service.served.use() as current:
        picture = await service.searchers.run(_served_picture, service, current, id)
    headers = {"ETag": picture.etag(side), "Cache-Control": CACHE_CONTROL}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(None, 304, headers)
    content = service.thumbnails.cached(picture, side)
    if content is None:
        content = await service.thumbnails.make(service.thumbnail_decoders, picture, side)
    else:
        service.metrics.cached.labels("thumbnail").inc()
    return Response(content, headers=headers, media_type="image/jpeg")


@router.get("/items/{id:path}", response_model=ItemAnswer, responses=NOT_FOUND, summary="An item")
async def get(request: Request, id: str) -> Response:
    return await _item_response(service_of(request), id)


async def _check_writable(request: Request) -> None:
    if not service_of(request).settings.writable:
        raise ApiError("read-only", "start the service with --writable to change items through it")


async def _new_id(id: str) -> str:
    if not is_id(id):
        raise ApiError("invalid", f"id: must have 1 to {MAX_ID:,} characters, no control characters among them")
    return id


@router.put(
    "/items/{id:path}",
    response_model=ItemAnswer,
    responses={201: {"model": ItemAnswer, "description": "A new item"}, **error_responses(*PUT_ERRORS)},
    dependencies=[Depends(_check_writable)],
    openapi_extra=BODY.openapi,
    summary="Add or replace an item",
)
async def put(
    request: Request, id: Annotated[str, Depends(_new_id)], new: Annotated[NewItem | NewItemForm, Depends(BODY.read)]
) -> Response:
    """By its code, or encoded from a text or a picture. The picture itself is not kept."""
    service = service_of(request)
    with service.served.use() as current:
        code = await _code(current, new)
        texts = await _text_codes(current, new.metadata)
        item, is_new = await service.searchers.run(_put, current, id, code, new.metadata, texts)
        return json_response(_item_answer(current, item), 201 if is_new else 200)


@router.delete(
    "/items/{id:path}",
    status_code=204,
    responses=error_responses("read-only", "not-found"),
    dependencies=[Depends(_check_writable)],
    summary="Remove an item",
)
async def delete(request: Request, id: str) -> Response:
    service = service_of(request)
    with service.served.use() as current:
        removed = await service.searchers.run(_remove, current, id)
    if not removed:
        raise _not_found()
    return Response(None, 204)


def json_response(value: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def is_id(id: str) -> bool:
    """Whether an item can have this id."""
    return 0 < len(id) <= MAX_ID and not CONTROL.search(id)


def get_item(current: OpenIndex, id: str) -> Item:
    item = current.index.get([id])[0] if is_id(id) else None
    if item is None:
        raise _not_found()
    return item


def _not_found() -> ApiError:
    return ApiError("not-found", "item not found")


def _is_literal(request: Request, name: str) -> bool:
    """Whether the address ends in this word itself; an id that ends in it has its slash percent-encoded."""
    raw: bytes = request.scope.get("raw_path") or b""
    return raw.partition(b"?")[0].endswith(f"/{name}".encode())


async def _item_response(service: Service, id: str) -> Response:
    with service.served.use() as current:
        return json_response(_item_answer(current, await service.searchers.run(_get, current, id)))


def _item_answer(current: OpenIndex, item: Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "code": item.code.tobytes().hex(),
        "metadata": public(item.metadata),
        "has_image": current.roots.has_file(item.id, item.metadata),
    }


async def _code(current: OpenIndex, new: NewItem | NewItemForm) -> Codes:
    if isinstance(new, NewItemForm):
        if current.warning is not None:  # the code would be of another version than those in the index
            raise ApiError("old-codes", current.warning)
        return pack([await current.encoder.picture(new.image)]).reshape(-1)
    if new.text is not None:
        return pack([await current.encoder.text(new.text)]).reshape(-1)
    code = np.frombuffer(bytes.fromhex(new.code or ""), np.uint8)
    if len(code) * 8 != current.index.code_bits:
        raise ApiError("invalid", f"code: {len(code)} bytes; codes of this index have {current.index.code_bits // 8}")
    return code


async def _text_codes(current: OpenIndex, metadata: Metadata) -> Codes | None:
    """The codes of an item's texts, for an index that has such codes."""
    texts = coded_texts(metadata)
    if not texts or not current.keeps_texts or not current.encoder.encodes:
        return None
    return pack(await asyncio.gather(*(current.encoder.text(text) for text in texts)))


# The functions below run in worker threads.


def _get(current: OpenIndex, id: str) -> Item:
    with current.in_use():
        return get_item(current, id)


def _served_picture(service: Service, current: OpenIndex, id: str) -> ServedPicture:
    return served_picture(_get(current, id), current.roots, service.settings.pictures)


def _original(service: Service, current: OpenIndex, id: str) -> tuple[ServedPicture, str]:
    picture = _served_picture(service, current, id)
    return picture, picture.media_type()


def _put(current: OpenIndex, id: str, code: Codes, metadata: Metadata, texts: Codes | None) -> tuple[Item, bool]:
    """What `index add` recorded about the picture stays in the metadata."""
    with current.in_use():
        old = current.index.get([id])[0]
        private = {key: old.metadata[key] for key in PRIVATE_KEYS if key in old.metadata} if old else {}
        item = Item(id, code, {**metadata, **private})
        current.index.upsert([id], code[None], [item.metadata])
        if texts is not None:
            current.index.put_texts([item], [texts])
        current.index.update_words(MAX_NEW_WORDS)
        current.refresh()
        return item, old is None


def _remove(current: OpenIndex, id: str) -> int:
    with current.in_use():
        removed = current.index.remove([id]) if is_id(id) else 0
        if removed:
            current.refresh()
        return removed
