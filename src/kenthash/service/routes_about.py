"""What tells about the service: health, figures, labels, the page."""

from pathlib import Path

from fastapi import APIRouter, Query
from starlette.responses import FileResponse, Response

from kenthash import __version__
from kenthash.service.problems import Problem, responses
from kenthash.service.routes_items import answer
from kenthash.service.schemas import Health, Labels, StatsAnswer
from kenthash.service.service import Service
from kenthash.service.settings import MAX_LABELS

STATIC = Path(__file__).parent / "static"


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["about"])
    settings, state = service.settings, service.state

    @routes.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    @routes.get("/healthz", response_model=Health, summary="Whether the process is alive")
    async def health() -> Response:
        return answer({"status": "ok", "key_required": settings.key is not None})

    @routes.get("/readyz", response_model=Health, responses=responses("not-ready"), summary="Whether it can answer")
    async def ready() -> Response:
        if state.draining or not state.served.encoding.batcher.alive:
            raise Problem("not-ready", "the service is stopping: ask another one", {"Retry-After": "5"})
        return answer({"status": "ready", "key_required": settings.key is not None})

    @routes.get("/stats", response_model=StatsAnswer, summary="The index, the model, and what may be asked")
    async def stats() -> Response:
        with state.use() as served:
            told, config = served.stats, served.config
            return answer(
                {
                    "engine": told.engine,
                    "items": told.items,
                    "bits": told.bits,
                    "bytes": told.bytes,
                    "bytes_per_item": told.bits // 8,
                    "model": served.about_model(),
                    "encoder": config.encoder,
                    "key_required": settings.key is not None,
                    "writable": settings.writable,
                    "finds": ["pictures", "texts"] if served.has_texts else ["pictures"],
                    "version": __version__,
                }
            )

    @routes.get("/labels", response_model=Labels, responses=responses("invalid"), summary="The most frequent labels")
    async def labels(limit: int = Query(100, ge=1, le=MAX_LABELS)) -> Response:
        with state.use() as served:
            counts, complete = await served.labels.most_frequent(limit)
        return answer({"labels": [{"label": label, "items": n} for label, n in counts], "complete": complete})

    @routes.get("/metrics", summary="For Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    return routes
