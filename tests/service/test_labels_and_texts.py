"""What the service tells of all items together: the number of each label, when and where photos were taken, and whether
there are texts to find."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import numpy as np
from small_service import BITS, make_model, problem

from kenthash import Hasher, Index
from kenthash.codes import Codes
from kenthash.model.relevance import Relevance
from kenthash.search import add_texts
from kenthash.search.engine import Metadata
from kenthash.search.models import assign_model
from kenthash.service.app import make_app
from kenthash.service.settings import ServiceSettings
from kenthash.service.state import Service, make_service
from kenthash.service.watch import watching

ITEMS, RARE = 600, 200  # items, and labels of each that no other has


@contextmanager
def serving(
    folder: Path, metadata: list[Metadata], codes: Codes | None = None, relevance: Relevance | None = None
) -> Iterator[Service]:
    make_model(folder / "model")
    if relevance is not None:
        relevance.write(folder / "model")
    with Index.create(folder / "x.kh", BITS) as index:
        assign_model(index, folder / "model")
        codes = np.zeros((len(metadata), BITS // 8), np.uint8) if codes is None else codes
        index.add([str(number) for number in range(len(metadata))], codes, metadata)
    service = make_service(ServiceSettings(str(folder / "x.kh")))
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
            while not (listed := (await client.get("/labels?limit=4")).json())["complete"]:
                await asyncio.sleep(0.05)
            return list(listed["labels"])

    labels = [[*(f"{item} {i}" for i in range(RARE)), "thing", f"kind {item % 2}"] for item in range(ITEMS)]
    with serving(tmp_path, [{"labels": few} for few in labels]) as service:
        listed = asyncio.run(ask(service))
    counts = [("thing", ITEMS), ("kind 0", ITEMS // 2), ("kind 1", ITEMS // 2), ("0 0", 1)]
    assert listed == [{"label": label, "items": items} for label, items in counts]


def test_facets_are_counted_and_followed(tmp_path: Path) -> None:
    photo: Metadata = {"taken": "2023-06-14 18:05:31", "camera": "X100V", "latitude": 48.21, "longitude": 16.37}

    async def ask(service: Service) -> None:
        expected = {
            "months": [{"month": "2023-06", "items": 2}],
            "cameras": [{"camera": "X100V", "items": 2}],
            "places": [{"latitude": 48.2, "longitude": 16.4, "km": 10.0, "items": 2}],
            "complete": True,
        }
        async with client_of(service) as client, watching(service):
            while (response := (await client.get("/facets")).json()) != expected:
                assert not response["complete"]
                await asyncio.sleep(0.05)
            with Index.open(tmp_path / "x.kh") as index:
                index.remove(["0", "1"])
            nothing = {"months": [], "cameras": [], "places": [], "complete": True}
            while (await client.get("/facets")).json() != nothing:
                await asyncio.sleep(0.05)

    with serving(tmp_path, [photo, photo, {}]) as service:
        asyncio.run(ask(service))


def test_relevance_is_that_of_a_calibrated_model(tmp_path: Path) -> None:
    fitted = Relevance({BITS: {"words": (0.3, 4.0, 0.1, -0.2), "picture": (-9.0, 1.0, 0.0, 0.0)}}, "some photos", 500)
    codes = np.random.default_rng(0).integers(0, 256, (20, BITS // 8), np.uint8)

    async def ask(service: Service) -> None:
        async with client_of(service) as client:
            answer = (await client.post("/search", json={"text": "a kite", "k": 12})).json()
            query = service.served.current.encoder.hasher.query_texts(["a kite"])
            (hits,) = service.served.current.index.search(query, 12)
            expected = fitted.of_hits(query, hits.distances, hits.full_distance, 20, "words")
            assert expected is not None and [hit["id"] for hit in answer["hits"]] == hits.ids
            relevance = [hit["relevance"] for hit in answer["hits"]]
            assert relevance == expected.round(4).tolist() == sorted(relevance, reverse=True)
            assert answer["close"] == sum(value >= 0.5 for value in relevance) > 0
            assert not any(hit["by_words"] for hit in answer["hits"])  # an index without words, as of before
            least = (relevance[2] + relevance[6]) / 2
            enough = (await client.post("/search", json={"text": "a kite", "min_relevance": least})).json()
            assert [hit["id"] for hit in enough["hits"]] == [hits.ids[i] for i in range(12) if relevance[i] >= least]
            unknown = (await client.post("/search", json={"text": "\N{DOG FACE}"})).json()
            assert unknown["close"] == 0 and {hit["relevance"] for hit in unknown["hits"]} == {0.0}
            combined = (await client.post("/search", json={"text": "a kite", "plus": ["snow"]})).json()
            assert combined["close"] is None and {hit["relevance"] for hit in combined["hits"]} == {None}
            refused = await client.post("/search", json={"text": "a", "without": ["b"], "min_relevance": 0.5})
            assert problem(refused, 422, "invalid").startswith("min-relevance needs a single query")
            similar = (await client.post("/search", json={"id": "3"})).json()
            assert similar["close"] == 0 and len(similar["hits"]) == 19
            texts = (await client.post("/search", json={"text": "a kite", "find": "texts"})).json()
            assert texts["close"] is None and texts["hits"][0]["relevance"] is None

    with serving(tmp_path, [{"text": "a kite"}, *({} for _ in range(19))], codes, fitted) as service:
        with Index.open(tmp_path / "x.kh") as index:
            add_texts(index, service.served.current.encoder.hasher.encode_texts)
        service.served.current.refresh()
        asyncio.run(ask(service))


def test_duplicates(tmp_path: Path) -> None:
    def photo(code: int, width: int) -> Metadata:
        return {"fingerprint": f"{code:024x}", "width": width, "height": 10, "size": 5 * width}

    async def ask(service: Service) -> None:
        async with client_of(service) as client:
            while not (response := (await client.get("/duplicates?limit=1")).json())["complete"]:
                await asyncio.sleep(0.05)
            (group,) = response["groups"]
            assert [item["id"] for item in group["items"]] == ["1", "3"]
            assert (response["all_groups"], response["all_items"]) == (2, 4)
            (group,) = (await client.get("/duplicates?offset=1")).json()["groups"]
            sizes = [(item["id"], item["width"], item["bytes"]) for item in group["items"]]
            assert sizes == [("2", 90, 450), ("0", 80, 400)]  # the largest first
            problem(await client.get("/duplicates?limit=0"), 422, "invalid")

    other = (1 << 96) - 1
    photos = [photo(1, 80), photo(other, 80), photo(3, 90), photo(other, 80), photo(0xFFFFFFFFFFFF, 80), {}]
    with serving(tmp_path, photos) as service:
        asyncio.run(ask(service))


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
