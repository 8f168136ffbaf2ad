"""Items found by the words of their names, texts and labels, beside their codes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from brute_force import Metadata

from kenthash.codes import pack
from kenthash.search import Index
from kenthash.search.filters import parse
from kenthash.search.local.maintenance import verify_index
from kenthash.search.words import search_with_words

OUTPUTS = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)
IDS = ["2019/Beaches2019/img_1.jpg", "2019/café/img_2.jpg", "a dog.png", "b.png", "c.png", "d.png"]
METADATA: list[Metadata] = [
    {},
    {},
    {},
    {"text": "Two dogs, running"},
    {"labels": ["hot dog"]},
    {"text": "dog", "year": 2020},
]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "x.kh", bits=16) as created:
        created.add(IDS, pack(OUTPUTS), METADATA)
        created.update_words()
        yield created


def test_words_are_those_of_names_texts_and_labels(index: Index) -> None:
    for text, ids in {
        "beach": [IDS[0]], "IMG_1": [IDS[0]], "Cafe": [IDS[1]], "2019 img": IDS[:2], "dogs": IDS[2:],
        "dog run": ["b.png"], "hot-dog": ["c.png"], '" OR *': [], "or": [], "": [], "cat": [],
    }.items():  # fmt: skip
        assert sorted(index.match_words(text)) == ids, text
    assert len(index.match_words("dog", 2)) == 2


def test_words_follow_changes(index: Index, tmp_path: Path) -> None:
    index.remove(["a dog.png"])
    index.upsert(["b.png"], pack(OUTPUTS[:1]), [{"text": "a cat"}])
    assert sorted(index.match_words("dog")) == ["c.png", "d.png"] and index.match_words("cat") == []
    for _ in range(2):
        index.update_words()
        assert index.match_words("cat") == ["b.png"]
    assert verify_index(str(tmp_path / "x.kh")).healthy


def test_a_request_does_not_wait_for_the_words_of_many_items(index: Index, tmp_path: Path) -> None:
    index.upsert(["e.png", "f.png"], pack(OUTPUTS[:2]), [{"text": "a cat"}] * 2)
    index.update_words(most=1)
    assert index.match_words("cat") == []
    index.update_words(most=2)
    assert index.match_words("cat") == ["e.png", "f.png"]
    with Index.create(tmp_path / "without.kh", bits=16) as other:  # as one of codes alone
        other.add(IDS, pack(OUTPUTS))
        other.update_words(most=100)
        assert other.match_words("dog") == []


def test_function_words_need_not_occur(index: Index) -> None:
    def named(text: str) -> list[str]:
        hits = search_with_words(index, text, OUTPUTS[:1], k=6)
        return sorted(hits.ids[: hits.named])

    assert named("my dogs, on the run") == ["b.png"] and named("The Beaches of 2019") == [IDS[0]]
    assert named("a") == ["a dog.png"] and named("with a") == []  # there are no other words


def test_items_with_the_words_come_first_each_part_by_distance(index: Index) -> None:
    query = OUTPUTS[:1]
    (by_codes,) = index.search(query, k=6)
    hits = search_with_words(index, "dog", query, k=6)
    assert hits.named == 4 and set(hits.ids[:4]) == set(IDS[2:]) and sorted(hits.ids) == sorted(IDS)
    distance = dict(zip(by_codes.ids, by_codes.distances.tolist(), strict=True))
    assert hits.distances.tolist() == [distance[id] for id in hits.ids]
    assert (np.diff(hits.distances[:4]) >= 0).all() and (np.diff(hits.distances[4:]) >= 0).all()
    assert hits.metadata == [METADATA[IDS.index(id)] for id in hits.ids]
    assert hits.differing is not None and by_codes.differing is not None
    assert dict(zip(hits.ids, hits.differing, strict=True)) == dict(zip(by_codes.ids, by_codes.differing, strict=True))
    recent = search_with_words(index, "dog", query, k=2, filter=parse("year = 2020"))
    assert (recent.ids, recent.named) == (["d.png"], 1)
    assert search_with_words(index, "dog", query, k=3, radius=0).ids == [IDS[0]]
    assert search_with_words(index, "no such words", query, k=6).ids == by_codes.ids
