"""One search, as a worker thread does it: from a code or an id to the answer's bytes."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from kenthash.search import Hits, Item
from kenthash.search.engine import Metadata, texts_of
from kenthash.search.filters import Filter
from kenthash.search.index import CONTROL, MAX_ID, MAX_K
from kenthash.service.batching import Code
from kenthash.service.files import OURS
from kenthash.service.problems import Problem
from kenthash.service.schemas import Options
from kenthash.service.state import Served


def find(
    served: Served, kind: str, query: Code | str, options: Options, where: Filter | None, started: float, encode: float
) -> tuple[bytes, float, int | None]:
    """The answer as JSON, the seconds in the engine, and how many codes it looked at. A query is a code or an id;
    the item that is asked about is not among its own answers."""
    with served.held():
        start = time.perf_counter()
        like = query if isinstance(query, str) else None
        code = item_of(served, like).code if like is not None else np.asarray(query)
        need = options.offset + options.k + 1 + (like is not None)
        search = served.index.search_texts if options.find == "texts" else served.index.search
        hits = search(code[None], min(need, MAX_K), options.radius, where)[0]
        page = [hit for hit in _hits_of(hits) if hit.id != like][options.offset :]
        more, page = len(page) > options.k, page[: options.k]
        shown_hits = [_hit_answer(hit) for hit in _with_codes(served, page)]
        now = time.perf_counter()
        answer = {
            "hits": shown_hits,
            "query": {"kind": kind, "code": code.tobytes().hex(), "bits": served.index.bits},
            "offset": options.offset,
            "k": options.k,
            "more": more,
            "timing": {
                "encode_ms": round(1e3 * encode, 3),
                "search_ms": round(1e3 * (now - start), 3),
                "total_ms": round(1e3 * (now - started), 3),
            },
            "looked_at": hits.looked_at,
            "items": served.stats.items,
            "bytes_per_item": served.index.bits // 8,
        }
        return orjson.dumps(answer), now - start, hits.looked_at


def is_id(id: str) -> bool:
    """Whether an item can be called so at all."""
    return 0 < len(id) <= MAX_ID and not CONTROL.search(id)


def item_of(served: Served, id: str) -> Item:
    item = served.index.get([id])[0] if is_id(id) else None
    if item is None:
        raise Problem("not-found", "there is no item with this id")
    return item


def shown(metadata: Metadata) -> Metadata:
    """Without what tells about the machine's files."""
    return {key: value for key, value in metadata.items() if key not in OURS}


def has_image(metadata: Metadata) -> bool:
    return isinstance(metadata.get("path"), str)


def item_answer(item: Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "code": item.code.tobytes().hex(),
        "metadata": shown(item.metadata),
        "has_image": has_image(item.metadata),
    }


class _Hit(NamedTuple):
    """An item near a query."""

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


def _with_codes(served: Served, page: list[_Hit]) -> list[_Hit]:
    """Engines that do not bring the codes with the hits are asked for them; what has gone since is left out."""
    if all(hit.code for hit in page):
        return page
    items = served.index.get([hit.id for hit in page])
    return [hit._replace(code=item.code.tobytes()) for hit, item in zip(page, items, strict=True) if item is not None]


def _hit_answer(hit: _Hit) -> dict[str, Any]:
    labels, texts = hit.metadata.get("labels"), texts_of(hit.metadata)
    return {
        "id": hit.id,
        "distance": hit.distance,
        "code": hit.code.hex(),
        "labels": labels if isinstance(labels, list) else [],
        "text": hit.text or (texts[0] if texts else None),
        "metadata": shown(hit.metadata),
        "has_image": has_image(hit.metadata),
    }
