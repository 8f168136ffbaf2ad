"""Routes about the service itself: health, statistics, labels, metrics, and the page."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import FileResponse, Response

from kenthash import __version__
from kenthash.service.errors import ApiError, error_responses
from kenthash.service.routes_items import json_response
from kenthash.service.schemas import MAX_LABELS, Health, Labels, StatsAnswer
from kenthash.service.state import service_of

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
    if service.state.draining or not service.state.current.encoder.alive:
        raise ApiError("not-ready", "the service is stopping: use another one", {"Retry-After": "5"})
    return json_response({"status": "ready", "key_required": service.settings.key is not None})


@router.get("/stats", response_model=StatsAnswer, summary="The index, the model, and which requests are possible")
async def stats(request: Request) -> Response:
    service = service_of(request)
    with service.state.use() as current:
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
    with service.state.use() as current:
        counts, complete = await current.labels.most_frequent(limit)
    return json_response({"labels": [{"label": label, "items": n} for label, n in counts], "complete": complete})


@router.get("/metrics", summary="For Prometheus", response_class=Response)
async def metrics(request: Request) -> Response:
    service = service_of(request)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")
