"""The service on an index that stands on a real Milvus or PostgreSQL."""

from pathlib import Path

import httpx
import numpy as np
import pytest
import servers
from small_service import BITS, ITEMS, LABELS, Place, make_place, name, problem, running, wait_until

from kenthash import Hasher, Index
from kenthash.codes import hamming, pack
from kenthash.search import add_texts
from kenthash.search.folders.folder import sync_folder
from kenthash.search.folders.walk import walk_folder
from kenthash.search.models import assign_model
from kenthash.search.queries import real_valued
from processes import PATIENCE


@pytest.fixture(scope="module", params=["milvus", "postgres"])
def target(request: pytest.FixtureRequest) -> str:
    return servers.new_addresses(request.param)("served")


def test_a_service_on_a_server(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    place: Place = make_place(tmp_path_factory.mktemp("engines"))
    hasher = Hasher.load(place.model)
    with Index.open(place.index) as local, Index.create(target, BITS) as index:
        assign_model(index, place.model)
        sync_folder(index, walk_folder(place.photos), hasher.encode_files)
        add_texts(index, hasher.encode_texts)
        items = [item for item in local.get(local.list_ids()) if item]
    output, codes = hasher.query_texts(["two dogs"]), np.stack([item.code for item in items])
    distances, bits = real_valued(output).distances(0, codes), hamming(pack(output), codes)[0].tolist()
    order = sorted(range(len(items)), key=lambda i: (distances[i], items[i].id))
    expected = [(bits[i], items[i].id, items[i].code.tobytes().hex()) for i in order]
    with (
        running(place, "--writable", index=target) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE) as client,
    ):

        def search_hits(**query: object) -> list[tuple[int, str, str]]:
            answer = client.post("/search", json={"text": "two dogs", **query})
            assert answer.status_code == 200, answer.text
            return [(hit["distance"], hit["id"], hit["code"]) for hit in answer.json()["hits"]]

        assert search_hits(k=5) == expected[:5] and search_hits(k=5, offset=5) == expected[5:10]
        cats = {item.id for item in items if item.metadata["labels"] == ["cat"]}
        assert search_hits(filter="labels has 'cat'") == [hit for hit in expected if hit[1] in cats]
        assert client.get("/stats").json()["engine"] == target.partition("://")[0]
        ask = {"text": "picture number 7", "find": "texts", "k": 100}
        hits = client.post("/search", json=ask).json()["hits"]
        assert len(hits) == ITEMS and (hits[0]["id"], hits[0]["distance"]) == (name(7), 0)
        counts = [{"label": label, "items": ITEMS // 3} for label in sorted(LABELS)]
        assert client.get("/labels").json() == {"labels": counts, "complete": True}
        client.put("/items/new", json={"code": "00" * 8, "metadata": {"text": "a thought"}})
        hits = client.post("/search", json={"text": "a thought", "find": "texts", "k": 1}).json()["hits"]
        assert [(hit["id"], hit["distance"], hit["text"]) for hit in hits] == [("new", 0, "a thought")]
        client.delete("/items/new")
        assert client.get(f"/items/{name(7)}/thumbnail").headers["content-type"] == "image/jpeg"
        assert client.delete(f"/items/{name(7)}").status_code == 204
        problem(client.get(f"/items/{name(7)}"), 404, "not-found")
        assert name(7) not in [hit["id"] for hit in client.post("/search", json=ask).json()["hits"]]
        assert name(7) not in [hit[1] for hit in search_hits(k=100)]


def test_a_service_whose_postgresql_is_down(tmp_path: Path) -> None:
    """Requests that need the index get one line, and answers again once the server is back."""
    place = make_place(tmp_path)
    with Index.open(place.index) as local:
        items = [item for item in local.get(local.list_ids()) if item]
    with servers.restartable_postgres() as postgres:
        target = f"{postgres.address}&table=served"
        with Index.create(target, BITS) as index:
            assign_model(index, place.model)
            index.add([item.id for item in items], np.stack([item.code for item in items]))
        with (
            running(place, "--writable", index=target) as server,
            httpx.Client(base_url=server.url, timeout=PATIENCE) as client,
        ):

            def search() -> httpx.Response:
                return client.post("/search", json={"text": "two dogs", "k": 3})

            before = search().json()["hits"]
            assert len(before) == 3
            for _ in range(2):
                postgres.kill()
                for _ in range(3):
                    problem(search(), 503, "index-unavailable")
                    problem(client.put("/items/lost", json={"code": "00" * 8}), 503, "index-unavailable")
                postgres.start()
                wait_until(lambda: search().status_code == 200)
                assert search().json()["hits"] == before
                assert client.put("/items/new", json={"code": "ff" * 8}).status_code in (200, 201)
                assert client.delete("/items/new").status_code == 204
            assert server.process.poll() is None
