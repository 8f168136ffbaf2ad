"""The service as programs see it, against what the index and the model say themselves."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from small_service import BITS, ITEMS, Place, Running, jpeg, name, problem, wait_until

from kenthash import Hasher, Index
from kenthash.codes import combine, hamming, pack, unpack
from kenthash.search import Item
from kenthash.search.queries import WITHOUT, real_valued


def search(client: httpx.Client, **query: object) -> dict[str, Any]:
    answer = client.post("/search", json=query)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def until(client: httpx.Client, address: str, key: str, wanted: object) -> None:
    wait_until(lambda: client.get(address).json()[key] == wanted)


def test_search_by_words_is_exact(client: httpx.Client, place: Place) -> None:
    text = "a number that no picture has"
    output = Hasher.load(place.model).query_texts([text])
    code = pack(output)
    with Index.open(place.index) as index:
        items = [item for item in index.get([name(i) for i in range(ITEMS)]) if item]
    expected = ranked(output, items)
    result = search(client, text=text, k=5)
    assert answers(result) == expected[:5] and result["proven"] is True
    assert result["close"] is None and {hit["relevance"] for hit in result["hits"]} == {None}  # not calibrated
    assert [hit["weighted"] for hit in result["hits"]] == sorted(hit["weighted"] for hit in result["hits"])
    assert result["query"] == {"kind": "text", "code": code[0].tobytes().hex(), "bits": BITS}
    assert result["more"] is True and result["items"] == ITEMS and result["looked_at"] == ITEMS
    assert result["bytes_per_item"] == 8 and result["timing"]["total_ms"] >= result["timing"]["search_ms"] > 0
    codes = {item.id: item.code.tobytes().hex() for item in items}
    for hit in result["hits"]:
        number = int(hit["id"].rpartition("/")[2].partition(".")[0])
        assert hit["code"] == codes[hit["id"]] and hit["text"] == f"picture number {number}" and hit["has_image"]
        public = {"text", "labels", "year", "folder", "width", "height", "orientation"}
        assert hit["metadata"].keys() == public
    next_page = search(client, text=text, k=100, offset=5)
    assert answers(next_page) == expected[5:] and next_page["more"] is False
    near = search(client, text=text, radius=expected[3][0])
    assert len(near["hits"]) == sum(d <= expected[3][0] for d, _ in expected)


def test_items_are_found_by_their_words(client: httpx.Client, place: Place) -> None:
    """Of the names of files, texts and labels; then all others, by their codes, on this page and the next."""
    by_name = search(client, text="the 7.jpg of 2024", k=3)["hits"]
    assert [hit["by_words"] for hit in by_name] == [True, False, False] and by_name[0]["id"] == name(7)
    cats = [name(i) for i in range(ITEMS) if i % 3 == 1]
    output = Hasher.load(place.model).query_texts(["a cat"])
    with Index.open(place.index) as index:
        items = [item for item in index.get(index.list_ids()) if item]
    order = ranked(output, items)
    expected = [hit for hit in order if hit[1] in cats] + [hit for hit in order if hit[1] not in cats]
    pages = [search(client, text="a cat", k=3, offset=offset) for offset in range(0, ITEMS, 3)]
    assert [hit for page in pages for hit in answers(page)] == expected
    assert [hit["by_words"] for page in pages for hit in page["hits"]] == [True] * 4 + [False] * (ITEMS - 4)
    similar = search(client, id=name(7))
    assert not any(hit["by_words"] for hit in similar["hits"])


def ranked(output: NDArray[np.float32], items: list[Item]) -> list[tuple[int, str]]:
    """Bits that differ and ids, in the order of weighted distances."""
    codes = np.stack([item.code for item in items])
    weighted, bits = real_valued(output).distances(0, codes), hamming(pack(output), codes)[0]
    order = sorted(range(len(items)), key=lambda i: (weighted[i], items[i].id))
    return [(int(bits[i]), items[i].id) for i in order]


def answers(result: dict[str, Any]) -> list[tuple[int, str]]:
    return [(hit["distance"], hit["id"]) for hit in result["hits"]]


def test_words_are_added_and_taken_away(client: httpx.Client, place: Place) -> None:
    hasher = Hasher.load(place.model)
    words = hasher.query_texts(["two dogs", "a kite", "the sea", "snow"])
    with Index.open(place.index) as index:
        items = [item for item in index.get(index.list_ids()) if item]
    more = {"plus": ["a kite", "the sea"], "without": ["snow"]}
    expected = ranked(combine(words, [1, 1, 1, -WITHOUT]), items)
    assert answers(search(client, text="two dogs", k=100, **more)) == expected
    picture = jpeg(3)
    expected = ranked(combine([hasher.query_pictures(picture)[0], *words[1:]], [1, 1, 1, -WITHOUT]), items)
    by_picture = client.post("/search", files={"image": ("x", picture)}, data={"k": "100", **more}).json()
    assert answers(by_picture) == expected
    own = next(item for item in items if item.id == name(3))
    expected = ranked(combine([unpack(own.code[None])[0], words[3]], [1, -WITHOUT]), items)
    similar = search(client, id=name(3), k=100, without=["snow"])
    assert answers(similar) == [hit for hit in expected if hit[1] != name(3)]
    problem(client.post("/search", json={"text": "x", "plus": ["y"] * 9}), 422, "invalid")
    problem(client.post("/search", json={"text": "x", "without": [" "]}), 422, "invalid")


def test_search_by_picture_and_by_id(client: httpx.Client) -> None:
    form = {"image": ("x.bin", jpeg(3), "text/plain")}  # what it is called does not matter
    answer = client.post("/search", files=form, data={"k": "3", "filter": "year >= 3"})
    assert answer.status_code == 200
    result = answer.json()
    assert (
        result["query"]["kind"] == "image" and result["hits"][0]["id"] == name(3) and result["hits"][0]["distance"] == 0
    )
    assert all(hit["metadata"]["year"] >= 3 for hit in result["hits"])
    similar = search(client, id=name(3), k=100)
    assert len(similar["hits"]) == ITEMS - 1 and name(3) not in [hit["id"] for hit in similar["hits"]]
    assert similar["query"]["code"] == result["query"]["code"]
    problem(client.post("/search", json={"id": "nobody"}), 404, "not-found")


def test_texts_are_found_by_their_own_codes(client: httpx.Client, place: Place) -> None:
    assert client.get("/stats").json()["finds"] == ["pictures", "texts"]
    result = search(client, text="picture number 7", find="texts", k=3)
    assert result["hits"][0]["id"] == name(7) and result["hits"][0]["distance"] == 0
    hasher = Hasher.load(place.model)
    codes = hasher.encode_texts([f"picture number {i}" for i in range(ITEMS)])
    picture = hasher.query_pictures([place.photos / "2024" / "4.jpg"])
    form = {"image": ("x", (place.photos / "2024" / "4.jpg").read_bytes())}
    result = client.post("/search", files=form, data={"find": "texts", "k": "100"}).json()
    assert answers(result) == ranked(picture, [Item(name(i), code, {}) for i, code in enumerate(codes)])
    cats = search(client, text="x", find="texts", filter="labels has 'cat'")
    assert {hit["labels"][0] for hit in cats["hits"]} == {"cat"} and len(cats["hits"]) == ITEMS // 3


def nearest_text(client: httpx.Client, text: str) -> tuple[str, int, str]:
    hit = search(client, text=text, find="texts", k=1)["hits"][0]
    return hit["id"], hit["distance"], hit["text"]


def test_texts_come_and_go_with_their_items(client: httpx.Client) -> None:
    """At once, and nothing else with them."""
    for text in ("a passing thought", "another thought"):
        client.put("/items/passing", json={"code": "00" * 8, "metadata": {"text": "words", "texts": ["more", text]}})
        assert nearest_text(client, text) == ("passing", 0, text)
        assert len(search(client, text=text, find="texts", k=100)["hits"]) == ITEMS + 1
    assert "a passing thought" not in str(search(client, text="a passing thought", find="texts", k=100)["hits"])
    client.delete("/items/passing")
    for k in (1, 100):
        hits = search(client, text="another thought", find="texts", k=k)["hits"]
        assert len(hits) == min(k, ITEMS) and "passing" not in [hit["id"] for hit in hits]


def test_texts_of_items_with_much_metadata(client: httpx.Client) -> None:
    """Whatever else an item holds, its texts are found; and those of items that come after it."""
    filled = 2**16 - len(json.dumps({"texts": ["the large one", "its other text"], "rest": ""}))
    for id, text, filler in (("large", "the large one", filled), ("next", "the next one", 10)):
        metadata = {"texts": [text, "its other text"], "rest": "x" * filler}
        assert client.put(f"/items/{id}", json={"code": "00" * 8, "metadata": metadata}).status_code == 201
    for id, text in (("large", "the large one"), ("next", "the next one")):
        assert nearest_text(client, text) == (id, 0, text)
    for id in ("large", "next"):
        client.delete(f"/items/{id}")


def test_labels_and_figures(client: httpx.Client, server: Running) -> None:
    until(client, "/labels", "complete", True)
    assert client.get("/labels?limit=2").json()["labels"] == [
        {"label": "cat", "items": 4},
        {"label": "dog", "items": 4},
    ]
    quoted = search(client, text="x", filter="labels has 'it''s'")
    assert len(quoted["hits"]) == 4
    stats = client.get("/stats").json()
    assert (stats["engine"], stats["items"], stats["bits"], stats["encoder"]) == ("local", ITEMS, BITS, "light")
    assert stats["writable"] is True and stats["key_required"] is False
    assert client.get("/healthz").json() == {"status": "ok", "key_required": False}
    assert client.get("/readyz").status_code == 200
    metrics = client.get("/metrics").text
    assert 'kenthash_requests_total{method="POST",route="/search",status="200"}' in metrics
    assert f"kenthash_items {float(ITEMS)}" in metrics
    assert "<h2><code>POST /search</code></h2>" in client.get("/docs").text
    assert client.get("/openapi.json").json()["openapi"].startswith("3.")


def test_pictures(client: httpx.Client, place: Place) -> None:
    address = f"/items/{quote(name(5), safe='')}"
    content = (place.photos / "2024" / "5.jpg").read_bytes()
    original = client.get(f"{address}/image")
    assert original.content == content and original.headers["content-type"] == "image/jpeg"
    small = client.get(f"{address}/thumbnail?size=128")
    assert small.headers["content-type"] == "image/jpeg" and "private" in small.headers["cache-control"]
    assert Image.open(BytesIO(small.content)).size == (40, 20)
    unchanged = client.get(f"{address}/thumbnail?size=128", headers={"If-None-Match": small.headers["etag"]})
    assert unchanged.status_code == 304 and not unchanged.content
    plain = client.get(f"/items/{name(5)}/thumbnail?size=128")  # slashes as they are
    assert plain.content == small.content
    problem(client.get(f"{address}/thumbnail?size=100000"), 422, "invalid")
    (place.photos / "2024" / "5.jpg").write_bytes(jpeg(5, orientation=6))  # lies on its side: to be turned
    turned = client.get(f"{address}/thumbnail?size=128")
    assert Image.open(BytesIO(turned.content)).size == (20, 40) and turned.headers["etag"] != small.headers["etag"]
    (place.photos / "2024" / "5.jpg").write_bytes(content)


def test_only_indexed_folders_are_shown(client: httpx.Client, place: Place) -> None:
    secret = place.folder / "secret.jpg"
    secret.write_bytes(jpeg(99))
    real = place.photos / "2024" / "6.jpg"
    content = real.read_bytes()
    for target in (secret, Path("/etc/passwd")):
        real.unlink()
        real.symlink_to(target)
        for kind in ("image", "thumbnail"):
            problem(client.get(f"/items/{quote(name(6), safe='')}/{kind}"), 404, "not-found")
    real.unlink()
    real.write_text("<svg onload='alert(1)'/>")  # no picture any more, whatever it is called
    problem(client.get(f"/items/{quote(name(6), safe='')}/image"), 404, "not-found")
    problem(client.get(f"/items/{quote(name(6), safe='')}/thumbnail"), 404, "not-found")
    real.write_bytes(content)
    for key in ("path", "digest"):
        put = client.put("/items/mine", json={"code": "00" * 8, "metadata": {key: str(secret)}})
        assert key in problem(put, 422, "invalid")
    problem(client.get(f"/items/{quote(str(secret), safe='')}/image"), 404, "not-found")


def test_items_are_written_and_removed(client: httpx.Client) -> None:
    strange = "a/b c%?#ü/image"  # ends like the address of a picture
    address = f"/items/{quote(strange, safe='')}"
    created = client.put(address, json={"code": "0123456789abcdef", "metadata": {"year": 1999, "labels": ["new"]}})
    assert created.status_code == 201
    expected = {"id": strange, "code": "0123456789abcdef", "metadata": {"year": 1999, "labels": ["new"]}}
    assert created.json() == client.get(address).json() == {**expected, "has_image": False}
    assert [hit["id"] for hit in search(client, id=name(0), filter="year = 1999")["hits"]] == [strange]
    by_text = client.put(address, json={"text": "picture number 2"})
    assert by_text.status_code == 200
    assert by_text.json()["code"] == search(client, text="picture number 2")["query"]["code"]
    by_picture = client.put(address, files={"image": ("x", jpeg(1))}, data={"metadata": json.dumps({"year": 5})})
    assert by_picture.json()["metadata"] == {"year": 5}
    until(client, "/stats", "items", ITEMS + 1)
    assert client.delete(address).status_code == 204
    problem(client.delete(address), 404, "not-found")
    problem(client.get(address), 404, "not-found")
    until(client, "/stats", "items", ITEMS)

    def with_words(text: str) -> list[str]:
        return [hit["id"] for hit in search(client, text=text)["hits"] if hit["by_words"]]

    client.put("/items/lighthouse", json={"code": "00" * 8, "metadata": {"text": "a stormy night"}})
    assert with_words("lighthouse") == with_words("storm") == ["lighthouse"]
    client.put("/items/lighthouse", json={"code": "00" * 8, "metadata": {"labels": ["calm sea"]}})
    assert with_words("storm") == [] and with_words("calm lighthouse") == ["lighthouse"]
    client.delete("/items/lighthouse")
    assert with_words("lighthouse") == []

    old = client.get(f"/items/{name(0)}").json()  # what `index add` noted stays with a picture whose words change
    changed = client.put(f"/items/{name(0)}", json={"code": old["code"], "metadata": {**old["metadata"], "note": "x"}})
    assert changed.status_code == 200 and changed.json()["has_image"] is True
    assert client.get(f"/items/{name(0)}/image").status_code == 200
    client.put(f"/items/{name(0)}", json={"code": old["code"], "metadata": old["metadata"]})


def test_logs_are_json_without_queries(client: httpx.Client, server: Running) -> None:
    def last_two() -> list[dict[str, object]]:
        return [json.loads(line) for line in server.log.read_text().splitlines()[-2:]]

    search(client, text="a very secret wish")
    client.get("/openapi.json")
    wait_until(lambda: [entry.get("route") for entry in last_two()] == ["/search", "/openapi.json"])
    entry = last_two()[0]
    assert entry["event"] == "request" and entry["method"] == "POST" and entry["status"] == 200
    assert "secret wish" not in server.log.read_text()
