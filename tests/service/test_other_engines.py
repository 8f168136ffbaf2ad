"""The service on an index that stands on a real Milvus or PostgreSQL."""

from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import servers
from small_service import BITS, ITEMS, LABELS, Place, make_place, name, problem, running

from kenthash import Hasher, Index
from kenthash.codes import hamming
from kenthash.search import add_texts
from kenthash.search.models import assign_model
from processes import PATIENCE

pytestmark = pytest.mark.xdist_group("servers")


@pytest.fixture(scope="module", params=["milvus", "postgres"])
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    with servers.running(request.param) as address:
        yield f"{address}/served" if request.param == "milvus" else f"{address}&table=served"


def test_a_service_on_a_server(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    place: Place = make_place(tmp_path_factory.mktemp("engines"))
    with Index.open(place.index) as local, Index.create(target, BITS) as index:
        assign_model(index, place.model)
        items = [item for item in local.get(local.list_ids()) if item]
        index.add([item.id for item in items], np.stack([item.code for item in items]), [i.metadata for i in items])
        hasher = Hasher.load(place.model)
        add_texts(index, hasher.encode_texts)
    code = hasher.encode_texts(["two dogs"])
    distances = hamming(code, np.stack([item.code for item in items]))[0].tolist()
    expected = sorted((d, item.id, item.code.tobytes().hex()) for d, item in zip(distances, items, strict=True))
    with (
        running(place, "--writable", index=target) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE) as client,
    ):

        def found(**asked: object) -> list[tuple[int, str, str]]:
            answer = client.post("/search", json={"text": "two dogs", **asked})
            assert answer.status_code == 200, answer.text
            return [(hit["distance"], hit["id"], hit["code"]) for hit in answer.json()["hits"]]

        assert found(k=5) == expected[:5] and found(k=5, offset=5) == expected[5:10]
        cats = {item.id for item in items if item.metadata["labels"] == ["cat"]}
        assert found(filter="labels has 'cat'") == [hit for hit in expected if hit[1] in cats]
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
        assert name(7) not in [hit[1] for hit in found(k=100)]
