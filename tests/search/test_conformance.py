"""One suite for every engine, on real servers, against brute force."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brute_force import Metadata, Reference, agree, clustered, names, outputs_near

from components import need
from kenthash.errors import DuplicateId, KenthashError, UsageError
from kenthash.search import Index, add_texts
from kenthash.search.export import export_index, read_codes
from kenthash.search.photo_counts import PhotoCounts


@pytest.mark.parametrize("bits", [16, 72, 256])
def test_nearest(target: Callable[[str], str], bits: int) -> None:
    rng = np.random.default_rng(bits)
    codes, ids, reference = clustered(rng, 900, bits), names(rng, 900), Reference()
    metadata: list[Metadata] = [{"year": int(year)} for year in rng.integers(2000, 2020, 900)]
    with Index.create(target(f"nearest{bits}"), bits=bits) as index:
        for part in slice(0, 500), slice(500, 900):
            index.add(ids[part], codes[part], metadata[part])
            reference.put(ids[part], codes[part], metadata[part])
        packed = np.concatenate([codes[:3], clustered(rng, 2, bits), rng.integers(0, 256, (1, bits // 8), np.uint8)])
        late: dict[str, Any] = {"filter": "year >= 2015", "true_of": lambda entry: entry["year"] >= 2015}
        for queries in packed, outputs_near(rng, packed):
            for k in 1, 10, 350, 10_000:
                agree(index, reference, queries, k=k)
            assert agree(index, reference, queries, k=1000) == 900 * len(queries)
            for radius in 0, bits // 8, bits:
                agree(index, reference, queries, k=20, radius=radius)
            assert agree(index, reference, queries, k=40, **late) == 40 * len(queries)
            agree(index, reference, queries, k=40, radius=bits // 8, **late)


def test_two_stages(target: Callable[[str], str], tmp_path: Path) -> None:
    """Fewer items than there are candidates: the answers are those of whole codes, through all changes. Whole codes are
    exported, too."""
    rng, reference = np.random.default_rng(8), Reference()
    address, ids, codes = target("stages"), names(rng, 350), clustered(rng, 350, 128)
    metadata: list[Metadata] = [{"n": n, "text": f"number {n}"} for n in range(350)]
    with Index.create(address, bits=64, rerank_bits=128) as index:
        assert (index.bits, index.code_bits, index.stats().bits) == (64, 128, 128)
        index.add(ids[:200], codes[:200], metadata[:200])
        index.compact()
        index.add(ids[200:], codes[200:], metadata[200:])
        index.upsert(ids[150:250], codes[::-1][:100], metadata[150:250])
        assert index.remove(ids[:30]) == 30
        reference.put(ids[30:], codes[30:], metadata[30:])
        reference.put(ids[150:250], codes[::-1][:100], metadata[150:250])
        add_texts(index, lambda texts: np.stack([codes[int(text.split()[1])] for text in texts]))
        with pytest.raises(UsageError, match=r"takes \[n, 16\]"):
            index.search(codes[:1, :8])
    for compacted in False, True:
        with Index.open(address) as index:
            assert (index.bits, index.code_bits) == (64, 128)
            if compacted:
                index.compact()
            for queries in codes[:4], outputs_near(rng, codes[:4]):
                agree(index, reference, queries, k=15)
                agree(index, reference, queries, k=15, radius=10)
                agree(index, reference, queries, k=5, filter="n < 99", true_of=lambda entry: entry["n"] < 99)
                assert index.search_texts(queries[1:2], 1)[0].codes is not None
            (hits,) = index.search_texts(codes[260:261], k=1)
            assert hits.texts == ["number 260"] and hits.distances.tolist() == [0]
            for item_id, item in zip(ids, index.get(ids), strict=True):
                assert (item and item.code.tobytes()) == reference.items.get(item_id, (None,))[0]
            assert export_index(index, tmp_path / f"compacted {compacted}", "npy") == 320
    exported = read_codes(tmp_path / "compacted True")
    assert dict(zip(exported[0], map(bytes, exported[1]), strict=True)) == {
        name: code for name, (code, _) in reference.items.items()
    }


def test_life(target: Callable[[str], str]) -> None:
    rng = np.random.default_rng(7)
    address, reference = target("life"), Reference()
    ids, codes = names(rng, 300), clustered(rng, 300, 64)
    metadata: list[Metadata] = [{"n": n, "labels": ["a", "b"][: n % 3], "none": None} for n in range(300)]
    with Index.create(address, bits=64) as index:
        assert [len(hits) for hits in index.search(codes[:2], k=5)] == [0, 0]
        assert index.stats().items == 0 and index.get(["a1"]) == [None] and index.list_ids() == []
        index.add([], codes[:0], [])
        index.add(ids[:200], codes[:200], metadata[:200])
        reference.put(ids[:200], codes[:200], metadata[:200])
        with pytest.raises(DuplicateId, match="already") as refused:
            index.add(ids[190:210], codes[190:210], metadata[190:210])
        assert any(repr(item_id) in str(refused.value) for item_id in ids[190:200]) and "\n" not in str(refused.value)
        assert index.stats().items == 200  # nothing of the batch is there
        index.upsert(ids[150:], codes[::-1][:150], metadata[150:])
        reference.put(ids[150:], codes[::-1][:150], metadata[150:])
        agree(index, reference, codes[:4], k=30)
        assert index.remove([*ids[:50], "unknown", "' or 1=1 --"]) == 50
        for item_id in ids[:50]:
            del reference.items[item_id]
        agree(index, reference, codes[:4], k=300)
        index.note("model", 'runs/"x" é')
        index.note("seed", "1")
        index.compact()
        agree(index, reference, codes[:4], k=300)
    with pytest.raises(UsageError, match="already"):
        Index.create(address, bits=64)
    with Index.open(address) as index:
        assert index.bits == 64 and index.stats().items == len(reference.items) == 250
        assert index.notes().items() >= {"model": 'runs/"x" é', "seed": "1"}.items()
        agree(index, reference, codes[:4], k=300)
        for item_id, item in zip(ids, index.get(ids), strict=True):
            assert (item and (item.code.tobytes(), item.metadata)) == reference.items.get(item_id)
        ordered = sorted(reference.items)
        assert index.list_ids("", 1000) == ordered
        assert index.list_ids(ordered[99], 7) == ordered[100:107]
        with pytest.raises(UsageError):
            index.search(np.zeros((1, 4), np.uint8))


def test_label_counts(target: Callable[[str], str]) -> None:
    rng = np.random.default_rng(3)
    ids, codes = names(rng, 400), clustered(rng, 400, 64)
    known = [f"label {i}" for i in range(30)] + ["", "it's", '"quoted"', "Ä", "ä", "\U0001f415", "\uffee"]
    metadata: list[Metadata] = [{"labels": rng.choice(known, n % 5).tolist()} for n in range(400)]
    metadata[:4] = [{}, {"labels": None}, {"labels": "dog"}, {"labels": ["twice", "twice"], "other": ["dog"]}]
    with Index.create(target("labels"), bits=64) as index:
        assert index.label_counts() == []
        index.add(ids, codes, metadata)
        index.upsert(ids[100:101], codes[:1], [{"labels": ["twice"]}])
        index.remove(ids[200:250])
        entries = [*metadata[:100], {"labels": ["twice"]}, *metadata[101:200], *metadata[250:]]
        lists = [entry["labels"] for entry in entries if isinstance(entry.get("labels"), list)]
        counts = Counter(label for labels in lists for label in set(labels))
        expected = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        assert index.label_counts(1000) == expected and ("twice", 2) in expected
        assert index.label_counts(7) == expected[:7]
        with pytest.raises(UsageError, match="limit"):
            index.label_counts(0)


def test_photo_counts(target: Callable[[str], str]) -> None:
    vienna, suburb, far = (48.21, 16.37), (48.33, 16.32), (-41.32, 174.83)
    photos: list[tuple[Metadata, int]] = [
        ({"taken": "2023-06-14 18:05:31", "camera": "Pixel", "latitude": vienna[0], "longitude": vienna[1]}, 5),
        ({"taken": "2023-06-15 08:00:00", "camera": "it's", "latitude": suburb[0], "longitude": suburb[1]}, 3),
        ({"taken": "2019-01-01", "latitude": far[0], "longitude": far[1]}, 4),
        ({"latitude": 90, "longitude": 180}, 1),
        # None of these can be counted.
        ({"taken": 2019, "camera": ["Pixel"], "latitude": "48", "longitude": 16.0}, 2),
        ({"taken": "June", "camera": "", "latitude": 48.0, "longitude": None}, 2),
        ({"taken": "2023-13-01", "latitude": -(2**63), "longitude": 1e300}, 2),
        ({}, 2),
    ]
    metadata = [entry for entry, items in photos for _ in range(items)]
    rng = np.random.default_rng(4)
    with Index.create(target("photos"), bits=64) as index:
        assert index.photo_counts() == PhotoCounts([], [], [])
        index.add(names(rng, len(metadata)), clustered(rng, len(metadata), 64), metadata)
        counts = index.photo_counts()
        assert counts.months == [("2019-01", 4), ("2023-06", 8)]
        assert counts.cameras == [("Pixel", 5), ("it's", 3)]
        assert [(place.latitude, place.longitude, place.items) for place in counts.places] == [
            (48.2, 16.4, 8), (-41.3, 174.8, 4), (90.0, 180.0, 1),
        ]  # fmt: skip
        assert index.photo_counts(1).places == counts.places[:1]
        for place in counts.places:  # each can be filtered by
            near = f"near({place.latitude}, {place.longitude}, {place.km} km)"
            assert len(index.search(clustered(rng, 1, 64), 100, filter=near)[0]) == place.items


def test_what_is_not_an_index(target: Callable[[str], str]) -> None:
    for name in "absent", "Absent":
        with pytest.raises(KenthashError) as refused:
            Index.open(target(name))
        assert "\n" not in str(refused.value) and name in str(refused.value)


@pytest.mark.parametrize("address", ["milvus://127.0.0.1:9/x", "postgresql://me:secret@127.0.0.1:9/x"])
def test_no_server(address: str) -> None:
    need("pymilvus" if address.startswith("milvus") else "psycopg")
    with pytest.raises(KenthashError, match=r"127\.0\.0\.1:9") as refused:
        Index.open(address)
    assert "\n" not in str(refused.value) and "secret" not in str(refused.value)


def test_a_closed_index_says_so(target: Callable[[str], str]) -> None:
    code = np.zeros((1, 8), np.uint8)
    index = Index.create(target("closed"), bits=64)
    index.close()
    index.close()  # a second time is no error
    for call in (
        lambda: index.search(code), lambda: index.search(code[:0]), lambda: index.get(["a"]),
        lambda: index.remove(["a"]), lambda: index.add(["a"], code), lambda: index.upsert(["a"], code),
        lambda: index.note("a", "b"), index.notes, index.list_ids, index.stats, index.compact,
    ):  # fmt: skip
        with pytest.raises(UsageError, match=r"^[^\n]*the index is closed: open it again$"):
            call()
