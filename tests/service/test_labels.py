"""How often each label comes, as the service tells it."""

import asyncio
from pathlib import Path

import httpx
import numpy as np
from small_service import BITS, make_model

from kenthash import Index
from kenthash.search.models import claim
from kenthash.service.app import make_app
from kenthash.service.service import make_service
from kenthash.service.settings import Settings

ITEMS, RARE = 600, 200  # items, and labels of each that no other has


def test_any_number_of_labels_is_counted(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    with Index.create(tmp_path / "x.kh", BITS) as index:
        claim(index, tmp_path / "model")
        labels = [[*(f"{item} {i}" for i in range(RARE)), "thing", f"kind {item % 2}"] for item in range(ITEMS)]
        codes = np.zeros((ITEMS, BITS // 8), np.uint8)
        index.add([str(item) for item in range(ITEMS)], codes, [{"labels": few} for few in labels])
    service = make_service(Settings(str(tmp_path / "x.kh")))

    async def run() -> list[dict[str, object]]:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            while not (told := (await client.get("/labels?limit=4")).json())["complete"]:
                await asyncio.sleep(0.05)
            return list(told["labels"])

    try:
        told = asyncio.run(run())
    finally:
        service.close()
    counts = [("thing", ITEMS), ("kind 0", ITEMS // 2), ("kind 1", ITEMS // 2), ("0 0", 1)]
    assert told == [{"label": label, "items": items} for label, items in counts]
