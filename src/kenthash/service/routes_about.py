"""Routes about the service and all items together: health, statistics, labels, facets, metrics, and the page."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import FileResponse, Response

from kenthash import __version__
from kenthash.search.duplicates import Duplicate
from kenthash.service.errors import ApiError, error_responses
from kenthash.service.routes_items import json_response
from kenthash.service.schemas import (
    MAX_COMPARED,
    MAX_LABELS,
    MAX_PAGE,
    DuplicatesAnswer,
    Facets,
    Health,
    Labels,
    StatsAnswer,
)
from kenthash.service.state import OpenIndex, service_of

STATIC = Path(__file__).parent / "static"

router = APIRouter(tags=["about"])


@router.get("/", include_in_schema=False)
async def page() -> Response:
    return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})


@router.get("/healthz", response_model=Health, summary="Whether the process is alive")
async def health(request: Request) -> Response:
    service = service_of(request)
    return json_response({"status": "ok", "key_required": service.settings.key is not None})


@router.get(
    "/readyz", response_model=Health, responses=error_responses("not-ready"), summary="Whether it can answer requests"
)
async def ready(request: Request) -> Response:
    service = service_of(request)
    if service.served.draining or not service.served.current.encoder.alive:
        raise ApiError("not-ready", "the service is stopping: use another one", {"Retry-After": "5"})
    return json_response({"status": "ready", "key_required": service.settings.key is not None})


@router.get("/stats", response_model=StatsAnswer, summary="The index, the model, and which requests are possible")
async def stats(request: Request) -> Response:
    service = service_of(request)
    with service.served.use() as current:
        figures = current.stats
        return json_response(
            {
                "engine": figures.engine,
                "items": figures.items,
                "bits": figures.bits,
                "bytes": figures.bytes,
                "bytes_per_item": figures.bits // 8,
                "model": current.model_info(),
                "encoder": current.config.encoder,
                "key_required": service.settings.key is not None,
                "writable": service.settings.writable,
                "finds": ["pictures", "texts"] if current.has_texts else ["pictures"],
                "version": __version__,
            }
        )


@router.get("/labels", response_model=Labels, responses=error_responses("invalid"), summary="The most frequent labels")
async def labels(request: Request, limit: Annotated[int, Query(ge=1, le=MAX_LABELS)] = 100) -> Response:
    service = service_of(request)
    with service.served.use() as current:
        counts = await current.labels.get()
    labels = [{"label": label, "items": n} for label, n in (counts or [])[:limit]]
    return json_response({"labels": labels, "complete": counts is not None})


@router.get("/facets", response_model=Facets, summary="When, where and by which cameras the photos were taken")
async def facets(request: Request) -> Response:
    """Of items whose files or metadata say so; each can be filtered by: `taken >= '2023-06' and camera = 'X100V'`."""
    service = service_of(request)
    with service.served.use() as current:
        counts = await current.photos.get()
    months, cameras, places = (counts.months, counts.cameras, counts.places) if counts else ([], [], [])
    return json_response(
        {
            "months": [{"month": month, "items": n} for month, n in months],
            "cameras": [{"camera": camera, "items": n} for camera, n in cameras],
            "places": [asdict(place) for place in places],
            "complete": counts is not None,
        }
    )


@router.get(
    "/duplicates",
    response_model=DuplicatesAnswer,
    responses=error_responses("invalid"),
    summary="Groups of pictures that are nearly the same",
)
async def duplicates(
    request: Request,
    offset: Annotated[int, Query(ge=0, description="The number of groups on the pages before")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="The number of groups on this page")] = 24,
) -> Response:
    """Saved again, resized, cropped a little, written on: of pictures that `kenthash index add FOLDER` has encoded."""
    service = service_of(request)
    with service.served.use() as current:
        if current.stats.items > MAX_COMPARED:
            detail = f"this index has more than {MAX_COMPARED:,} items: run `kenthash index duplicates`"
            raise ApiError("invalid", detail)
        result = await current.duplicates.get()
        groups = result.groups if result else []
        page = [{"items": [_duplicate(current, item) for item in group]} for group in groups[offset : offset + limit]]
    answer = {"groups": page, "all_groups": len(groups), "all_items": sum(map(len, groups))}
    return json_response(answer | {"complete": result is not None})


def _duplicate(current: OpenIndex, item: Duplicate) -> dict[str, Any]:
    width, height, size = (
        value if isinstance(value := item.metadata.get(key), int) else None for key in ("width", "height", "size")
    )
    has_image = current.roots.has_file(item.id, item.metadata)
    return {"id": item.id, "width": width, "height": height, "bytes": size, "has_image": has_image}


@router.get("/metrics", summary="For Prometheus", response_class=Response)
async def metrics(request: Request) -> Response:
    service = service_of(request)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")
