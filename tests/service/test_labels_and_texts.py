"""What the service tells of all items together: how often each label comes, and whether there are texts to find."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import numpy as np
from small_service import BITS, make_model, problem

from kenthash import Hasher, Index
from kenthash.search import add_texts
from kenthash.search.engine import Metadata
from kenthash.search.models import assign_model
from kenthash.service.app import make_app
from kenthash.service.settings import Settings
from kenthash.service.state import Service, make_service
from kenthash.service.watch import watching

ITEMS, RARE = 600, 200  # items, and labels of each that no other has


@contextmanager
def serving(folder: Path, metadata: list[Metadata]) -> Iterator[Service]:
    make_model(folder / "model")
    with Index.create(folder / "x.kh", BITS) as index:
        assign_model(index, folder / "model")
        codes = np.zeros((len(metadata), BITS // 8), np.uint8)
        index.add([str(number) for number in range(len(metadata))], codes, metadata)
    service = make_service(Settings(str(folder / "x.kh")))
    try:
        yield service
    finally:
        service.close()


@asynccontextmanager
async def client_of(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(make_app(service)), base_url="http://localhost"
    ) as client:
        yield client


def test_any_number_of_labels_is_counted(tmp_path: Path) -> None:
    async def ask(service: Service) -> list[dict[str, object]]:
        async with client_of(service) as client:
            while not (told := (await client.get("/labels?limit=4")).json())["complete"]:
                await asyncio.sleep(0.05)
            return list(told["labels"])

    labels = [[*(f"{item} {i}" for i in range(RARE)), "thing", f"kind {item % 2}"] for item in range(ITEMS)]
    with serving(tmp_path, [{"labels": few} for few in labels]) as service:
        told = asyncio.run(ask(service))
    counts = [("thing", ITEMS), ("kind 0", ITEMS // 2), ("kind 1", ITEMS // 2), ("0 0", 1)]
    assert told == [{"label": label, "items": items} for label, items in counts]


def test_an_index_without_texts_says_what_to_do_and_is_followed(tmp_path: Path) -> None:
    async def ask(service: Service) -> None:
        query = {"text": "a kite", "find": "texts"}
        async with client_of(service) as client, watching(service):
            detail = problem(await client.post("/search", json=query), 422, "invalid")
            assert detail == "find: this index has no texts: run `kenthash index add FOLDER --texts`"
            with Index.open(tmp_path / "x.kh") as index:
                await asyncio.to_thread(add_texts, index, Hasher.load(tmp_path / "model").encode_texts)
            while (await client.get("/stats")).json()["finds"] != ["pictures", "texts"]:
                await asyncio.sleep(0.05)
            (hit,) = (await client.post("/search", json=query)).json()["hits"]
            assert (hit["id"], hit["distance"], hit["text"]) == ("0", 0, "a kite")

    with serving(tmp_path, [{"text": "a kite"}, {}]) as service:
        asyncio.run(ask(service))
