"""Items found by their texts, on every engine, against brute force."""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
import pytest
from brute_force import Metadata, names

from kenthash.codes import Codes, hamming
from kenthash.errors import UsageError
from kenthash.search import Hits, Index, Item, add_texts
from kenthash.search.engine import MAX_TEXTS, coded_texts
from kenthash.search.filters import matches, parse

BITS = 16  # many ties


def encode(texts: Sequence[str]) -> Codes:
    digests = b"".join(blake2b(text.encode(), digest_size=BITS // 8).digest() for text in texts)
    return np.frombuffer(digests, np.uint8).reshape(-1, BITS // 8)


def expected(items: list[Item], code: Codes, k: int) -> list[tuple[int, str, str, bytes]]:
    """(distance, id, text, its code) of the k items with the nearest texts."""
    best = []
    for item in items:
        if texts := coded_texts(item.metadata):
            distances = hamming(code[None], encode(texts))[0].tolist()
            nearest = distances.index(min(distances))
            best.append((min(distances), item.id, texts[nearest], encode(texts)[nearest].tobytes()))
    return sorted(best)[:k]


def as_rows(hits: Hits) -> list[tuple[int, str, str, bytes]]:
    assert hits.codes is not None and hits.texts is not None
    codes = [code.tobytes() for code in hits.codes]
    return list(zip(hits.distances.tolist(), hits.ids, hits.texts, codes, strict=True))


def everything(index: Index) -> list[Item]:
    return [item for item in index.get(index.list_ids(limit=10_000)) if item is not None]


def agree(index: Index, queries: Codes, k: int = 20) -> None:
    items = everything(index)
    for code, hits in zip(queries, index.search_texts(queries, k), strict=True):
        assert as_rows(hits) == expected(items, code, k)
        entries = {item.id: item.metadata for item in items}
        assert hits.metadata == [entries[id] for id in hits.ids]


def test_texts(target: Callable[[str], str]) -> None:
    rng = np.random.default_rng(1)
    ids, codes, queries = names(rng, 300), np.zeros((300, BITS // 8), np.uint8), rng.integers(0, 256, (4, 2), np.uint8)
    metadata: list[Metadata] = [
        {"texts": [f"text {i} {j}" for j in range(i % (MAX_TEXTS + 3))], "year": i % 7} for i in range(300)
    ]
    metadata[:3] = [{"text": "a single one", "year": 1}, {"text": "one", "texts": ["one", "two", " "]}, {"texts": None}]
    address = target("with_texts")
    with Index.create(address, BITS) as index:
        index.add(ids[:200], codes[:200], metadata[:200])
        assert not index.has_texts() and index.count_texts(ids[:3]) == [0, 0, 0]
        with pytest.raises(UsageError, match=r"no texts: run `kenthash index add FOLDER --texts`"):
            index.search_texts(queries)
        wanted = sum(len(coded_texts(entry)) for entry in metadata[:200])
        assert add_texts(index, encode) == wanted and add_texts(index, encode) == 0
        assert index.has_texts() and index.count_texts([*ids[:3], "nobody"]) == [1, 2, 0, 0]
        for k in (1, 20, 300):
            agree(index, queries, k)
        for radius in (0, 2):
            near = expected(everything(index), queries[0], 300)
            assert as_rows(index.search_texts(queries[:1], 300, radius)[0]) == [hit for hit in near if hit[0] <= radius]
        late = [item for item in everything(index) if matches(parse("year > 4"), item.metadata)]
        hits = index.search_texts(queries[:1], 7, filter="year > 4")[0]
        assert as_rows(hits) == expected(late, queries[0], 7)
        assert len(index.search(queries, 300)[0]) == 200  # pictures are found as ever

        index.upsert(ids[190:], codes[190:], metadata[190:][::-1])
        index.remove(ids[:50])
        assert index.count_texts(ids[48:52]) == [0, 0, *(len(coded_texts(entry)) for entry in metadata[50:52])]
        remaining = [item for item in everything(index) if item.id in ids[50:190]]
        assert as_rows(index.search_texts(queries[:1], 300)[0]) == expected(remaining, queries[0], 300)
        add_texts(index, encode)
        index.compact()
        agree(index, queries, 300)
    with Index.open(address) as index:
        agree(index, queries, 300)


def test_codes_of_texts_that_changed_meanwhile_are_not_kept(target: Callable[[str], str]) -> None:
    code = np.zeros((1, BITS // 8), np.uint8)
    with Index.create(target("changing"), BITS) as index:
        index.upsert(["a", "b"], np.repeat(code, 2, axis=0), [{"text": "old"}, {"text": "same"}])
        items = everything(index)
        index.upsert(["a"], code, [{"text": "new"}])
        index.put_texts(
            [*items, Item("gone", code[0], {"text": "old"})], [encode(["old"]), encode(["same"]), encode(["old"])]
        )
        assert index.count_texts(["a", "b", "gone"]) == [0, 1, 0]
        index.put_texts(everything(index), [encode(["new"]), encode(["other"])])  # again: replaced
        assert add_texts(index, encode) == 0
        assert as_rows(index.search_texts(encode(["new"]))[0])[0][1:3] == ("a", "new")
        with pytest.raises(UsageError, match="2 codes for the 1 texts of 'a'"):
            index.put_texts(everything(index)[:1], [encode(["new", "more"])])


def test_many_items_with_many_texts_are_all_found(target: Callable[[str], str]) -> None:
    """Also where their texts are more than the hits of a search; and one with as much metadata as an item may have."""
    count = 3000
    metadata: list[Metadata] = [{"texts": [f"{i} {j}" for j in range(MAX_TEXTS)]} for i in range(count)]
    metadata[7]["rest"] = "x" * (2**16 - 200)
    with Index.create(target("many"), BITS) as index:
        index.add([f"{i:05}" for i in range(count)], np.zeros((count, BITS // 8), np.uint8), metadata)
        add_texts(index, encode)
        agree(index, encode(["a query"]), count)
