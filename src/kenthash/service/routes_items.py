"""/items: single items, and their pictures."""

from typing import Any, Literal

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import FileResponse, Response

from kenthash.search import Item
from kenthash.service.files import Picture, picture_of
from kenthash.service.find import item_answer, item_of
from kenthash.service.problems import responses
from kenthash.service.schemas import ItemAnswer
from kenthash.service.service import Service
from kenthash.service.state import Served
from kenthash.service.thumbnails import etag, media_type

KEPT = "private, max-age=600"  # seconds for which a browser need not ask again
CONTENT = {"image/*": {"schema": {"type": "string", "format": "binary"}}}
NOT_FOUND = responses("not-found")


def answer(value: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def _literal(request: Request, name: str) -> bool:
    """Whether the address ends in this word itself; an id that does has its slash percent-encoded."""
    raw: bytes = request.scope.get("raw_path") or b""
    return raw.partition(b"?")[0].endswith(f"/{name}".encode())


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["items"])
    folders = tuple(folder.resolve() for folder in service.settings.pictures)

    async def item_at(id: str) -> Response:
        with service.state.use() as served:
            return answer(item_answer(await service.searchers.run(_item, served, id)))

    def picture_at(served: Served, id: str) -> Picture:
        with served.held():
            return picture_of(item_of(served, id), folders)

    def original(served: Served, id: str) -> tuple[Picture, str]:
        picture = picture_at(served, id)
        return picture, media_type(picture.path)

    @routes.get(
        "/items/{id:path}/image",
        responses={200: {"content": CONTENT, "description": "The file as it is"}, **NOT_FOUND},
        response_class=Response,
        summary="The original picture",
    )
    async def image(request: Request, id: str) -> Response:
        if not _literal(request, "image"):
            return await item_at(f"{id}/image")
        with service.state.use() as served:
            picture, kind = await service.searchers.run(original, served, id)
        headers = {"ETag": etag(picture, "original"), "Cache-Control": KEPT, "Content-Security-Policy": "sandbox"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(None, 304, headers)
        return FileResponse(picture.path, headers=headers, media_type=kind)

    @routes.get(
        "/items/{id:path}/thumbnail",
        responses={
            200: {"content": {"image/jpeg": CONTENT["image/*"]}, "description": "A small upright JPEG"},
            **NOT_FOUND,
            **responses("invalid"),
        },
        response_class=Response,
        summary="A small picture",
    )
    async def thumbnail(
        request: Request, id: str, size: Literal["128", "256", "512"] = Query("256", description="The longer side")
    ) -> Response:
        if not _literal(request, "thumbnail"):
            return await item_at(f"{id}/thumbnail")
        with service.state.use() as served:
            picture = await service.searchers.run(picture_at, served, id)
        headers = {"ETag": etag(picture, int(size)), "Cache-Control": KEPT}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(None, 304, headers)
        made = service.thumbnails.cached(picture, int(size))
        if made is None:
            made = await service.thumbnails.make(service.thumbnailers, picture, int(size))
        else:
            service.metrics.cached.labels("thumbnail").inc()
        return Response(made, headers=headers, media_type="image/jpeg")

    @routes.get("/items/{id:path}", response_model=ItemAnswer, responses=NOT_FOUND, summary="An item")
    async def get(id: str) -> Response:
        return await item_at(id)

    return routes


def _item(served: Served, id: str) -> Item:
    with served.held():
        return item_of(served, id)
