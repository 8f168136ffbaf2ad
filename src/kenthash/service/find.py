"""One search, as a worker thread does it: from a code or an id to the answer's bytes."""

import time
from typing import Any

import numpy as np
import orjson

from kenthash.codes import Codes
from kenthash.search import Item
from kenthash.search.engine import Metadata, texts_of
from kenthash.search.filters import Filter
from kenthash.search.index import CONTROL, MAX_ID, MAX_K
from kenthash.service.batching import Code
from kenthash.service.files import OURS
from kenthash.service.problems import Problem
from kenthash.service.schemas import Options
from kenthash.service.state import Served
from kenthash.service.texts import Found, found


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
        nearest, looked_at = _nearest(served, code[None], min(need, MAX_K), options, where)
        page = [one for one in nearest if one.id != like][options.offset :]
        more, page = len(page) > options.k, page[: options.k]
        hits = _hits(_with_codes(served, page))
        now = time.perf_counter()
        answer = {
            "hits": hits,
            "query": {"kind": kind, "code": code.tobytes().hex(), "bits": served.index.bits},
            "offset": options.offset,
            "k": options.k,
            "more": more,
            "timing": {
                "encode_ms": round(1e3 * encode, 3),
                "search_ms": round(1e3 * (now - start), 3),
                "total_ms": round(1e3 * (now - started), 3),
            },
            "looked_at": looked_at,
            "items": served.stats.items,
            "bytes_per_item": served.index.bits // 8,
        }
        return orjson.dumps(answer), now - start, looked_at


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


def _nearest(
    served: Served, code: Codes, k: int, options: Options, where: Filter | None
) -> tuple[list[Found], int | None]:
    if options.find == "texts":
        return served.census.texts.search(code, k, options.radius, where)
    hits = served.index.search(code, k, options.radius, where)[0]
    return found(hits), hits.looked_at


def _with_codes(served: Served, page: list[Found]) -> list[Found]:
    """Engines that do not bring the codes with the hits are asked for them; what has gone since is left out."""
    if all(one.code for one in page):
        return page
    items = served.index.get([one.id for one in page])
    return [one._replace(code=item.code.tobytes()) for one, item in zip(page, items, strict=True) if item is not None]


def _hits(page: list[Found]) -> list[dict[str, Any]]:
    hits = []
    for one in page:
        labels, texts = one.metadata.get("labels"), texts_of(one.metadata)
        hits.append(
            {
                "id": one.id,
                "distance": one.distance,
                "code": one.code.hex(),
                "labels": labels if isinstance(labels, list) else [],
                "text": texts[0] if texts else None,
                "metadata": shown(one.metadata),
                "has_image": has_image(one.metadata),
            }
        )
    return hits
