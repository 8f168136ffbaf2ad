"""What `kenthash` itself exports: a folder searched in one call, the index as a collection, encoding, exceptions."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import kenthash
from kenthash import DuplicateId, Hasher, Index, KenthashError, UsageError
from kenthash.api import index_folder, search_index
from kenthash.codes import combine
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork
from kenthash.model.relevance import Relevance
from kenthash.search.queries import WITHOUT


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `photos`, one of them in `photos/old`, and a `model` of the light encoder."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "photos" / "old").mkdir(parents=True)
    for number, name in enumerate(("0.jpg", "1.jpg", "2.jpg", "old/3.jpg")):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).resize((90, 60)).save(folder / "photos" / name)
    torch.manual_seed(0)
    head = HeadConfig()
    HashNetwork(HasherConfig(64, 1280, 384, head, head, "light")).save(folder / "model")
    return folder


@pytest.fixture(scope="module")
def hasher(place: Path) -> Hasher:
    return Hasher.from_pretrained(place / "model", device="cpu")


def test_a_hasher_says_what_it_is(place: Path, hasher: Hasher) -> None:
    assert repr(hasher) == f"<Hasher {place.name}: 64 bits, encoder light, on cpu>"  # named as the run would be


def test_a_list_may_mix_texts_and_pictures(place: Path, hasher: Hasher) -> None:
    file = place / "photos" / "0.jpg"
    with Image.open(file) as picture:
        mixed = hasher.encode(["two dogs", file, "a kite", picture, file.read_bytes()], batch_size=2)
    texts, (pictured,) = hasher.encode_texts(["two dogs", "a kite"]), hasher.encode_pictures(file)
    assert np.array_equal(mixed, [texts[0], pictured, texts[1], pictured, pictured])
    assert np.array_equal(hasher.encode("a kite"), texts[1]) and np.array_equal(hasher.encode(file), pictured)
    assert hasher.encode([]).shape == (0, 8)
    with pytest.raises(UsageError, match="batch_size 0: must be 1 or more"):
        hasher.encode(["a", "b"], batch_size=0)
    with pytest.raises(UsageError, match="ndarray: neither a text"):
        hasher.encode([np.ones(3)])  # type: ignore[list-item]


def test_a_bar_is_shown_when_it_is_asked_for(hasher: Hasher, capsys: pytest.CaptureFixture[str]) -> None:
    hasher.encode(["two dogs", "a kite"], show_progress_bar=False)
    hasher.encode(["two dogs", "a kite"])
    assert capsys.readouterr().err == ""
    hasher.encode(["two dogs", "a kite"], show_progress_bar=True)
    assert "encode" in capsys.readouterr().err


def test_a_folder_is_searched_in_one_call(place: Path, tmp_path: Path, hasher: Hasher) -> None:
    photos = shutil.copytree(place / "photos", tmp_path / "photos")
    hits = kenthash.search_folder(photos, photos / "1.jpg", k=2, model=place / "model")
    assert hits[0].path == photos / "1.jpg" and hits[0].distance == 0 and len(hits) == 2
    (photos / "1.jpg").rename(photos / "old" / "4.jpg")
    words = kenthash.search_folder(photos, "two dogs", k=10)
    with Index.open(photos / ".kenthash.kh") as index:
        (expected,) = index.search(hasher.query_texts("two dogs"))
    assert [hit.id for hit in words] == expected.ids
    assert {hit.id for hit in words} == {"0.jpg", "2.jpg", "old/3.jpg", "old/4.jpg"}
    named = kenthash.search_folder(photos, "the old 3", k=2, model=place / "model")
    assert (named[0].id, [hit.by_words for hit in named]) == ("old/3.jpg", [True, False])
    assert named[0].relevance is None  # the model was not calibrated
    assert named[0].metadata == {"width": 90, "height": 60, "orientation": "landscape", "folder": "old"}
    less = kenthash.search_folder(photos, "two dogs", k=10, plus=["a kite"], without=["snow", "a cat"])
    outputs = hasher.query_texts(["two dogs", "a kite", "snow", "a cat"])
    with Index.open(photos / ".kenthash.kh") as index:
        (expected,) = index.search(combine(outputs, [1, 1, -WITHOUT, -WITHOUT]))
    assert [hit.id for hit in less] == expected.ids
    with pytest.raises(UsageError, match="min-relevance: the model of this index was not calibrated"):
        kenthash.search_folder(photos, "two dogs", min_relevance=0.5)
    # Of a folder in an indexed folder, only what is in it, however far away.
    near = [hit.path for hit in kenthash.search_folder(photos, photos / "0.jpg")]
    (old,) = kenthash.search_folder(photos / "old", photos / "0.jpg", k=1, filter="width = 90")
    assert old.path == next(path for path in near if path is not None and path.parent.name == "old")
    (tmp_path / "empty").mkdir()
    with pytest.raises(KenthashError, match="no pictures here"):
        kenthash.search_folder(tmp_path / "empty", "two dogs")


def test_an_index_is_searched_by_all_kinds_of_queries(place: Path, tmp_path: Path, hasher: Hasher) -> None:
    photos, model = shutil.copytree(place / "photos", tmp_path / "photos"), tmp_path / "model"
    shutil.copytree(place / "model", model)
    index_folder(photos, model=model)
    Relevance({64: {"words": (0.0, 2.0, 0.0, 0.0), "picture": (0.0, 5.0, 0.0, 0.0)}}, "some photos", 500).write(model)
    with Index.open(photos / ".kenthash.kh") as index:
        by_picture = list(search_index(index, photos / "1.jpg"))
        assert (by_picture[0].id, by_picture[0].distance, len(by_picture)) == ("1.jpg", 0, 4)
        assert by_picture[0].relevance is not None and by_picture[0].relevance > 0.9
        for like in ("1.jpg", str(photos / "1.jpg")):  # by its id or file
            similar = search_index(index, like=like, k=3)
            assert sorted(hit.id for hit in similar) == ["0.jpg", "2.jpg", "old/3.jpg"]
        # A query of several parts has no relevance.
        assert search_index(index, like="1.jpg", plus=["a kite"]).relevance is None
        with pytest.raises(UsageError, match="min-relevance needs a single query"):
            search_index(index, photos / "1.jpg", without=["a kite"], min_relevance=0.5)
        words = search_index(index, "two dogs", k=4)
        assert words.relevance is not None and words.nearest is None
        nothing = search_index(index, "two dogs", min_relevance=0.999)
        assert len(nothing) == 0 and nothing.nearest == (words.hits.ids[0], words.relevance[0])
        assert words.relevance.max() > 0
        unknown = search_index(index, "\N{DOG FACE} " + "x" * 2000)
        assert unknown.relevance is not None and unknown.relevance.max() == 0 and unknown.nothing_is_close
        assert search_index(index, "\N{DOG FACE} 3").hits.named == 1  # by its name
        least = search_index(index, "two dogs", min_relevance=float(words.relevance[1]))
        assert least.hits.ids == words.hits.ids[: len(least)] and len(least) >= 2
        named = search_index(index, "an old 3", min_relevance=0.999)
        assert named.hits.ids == ["old/3.jpg"] and not named.nothing_is_close
        shutil.rmtree(model)
        assert search_index(index, like="1.jpg", k=3).hits.ids == similar.hits.ids  # nothing is to be encoded
        with pytest.raises(KenthashError, match="not there any more"):
            search_index(index, "two dogs")
        with pytest.raises(UsageError, match="give one of"):
            search_index(index, "two dogs", "1.jpg")
        for empty in ({"query": " "}, {"query": photos / "1.jpg", "plus": [""]}):
            with pytest.raises(UsageError, match="are empty"):
                search_index(index, **empty, model=hasher)
        for broken in ({"query": "\udcff"}, {"query": photos / "1.jpg", "without": ["half \ud83d"]}):
            with pytest.raises(UsageError, match="are not valid Unicode"):
                search_index(index, **broken, model=hasher)
        with pytest.raises(KenthashError, match="no such id"):
            search_index(index, like="9.jpg")


def test_a_folder_is_added_to_an_index_by_a_hasher(place: Path, tmp_path: Path, hasher: Hasher) -> None:
    with Index.create(tmp_path / "a.kh", bits=64) as index:
        report = index.add_folder(place / "photos", hasher, exclude=["old"])
        assert (report.added, report.texts) == (3, None)
        assert index.add_folder(place / "photos", hasher).unchanged == 3  # what is left out is remembered
        assert list(index) == ["photos/0.jpg", "photos/1.jpg", "photos/2.jpg"]
        assert np.array_equal(index["photos/1.jpg"].code, hasher.encode(place / "photos" / "1.jpg"))
    assert index_folder(place / "photos", tmp_path / "a.kh").unchanged == 3  # by the model that is noted
    with Index.create(tmp_path / "b.kh", bits=32) as index, pytest.raises(UsageError, match="codes of 64 bits"):
        index.add_folder(place / "photos", hasher)


def test_an_index_is_a_collection(tmp_path: Path) -> None:
    ids = [f"{number:04}" for number in range(1500)]
    codes = np.random.default_rng(0).integers(0, 256, (1500, 2), np.uint8)
    with Index.create(tmp_path / "a.kh", bits=16) as index:
        assert len(index) == 0 and bool(index) and list(index) == []
        index.add(ids, codes, [{"n": number} for number in range(1500)])
        assert len(index) == 1500 and list(index) == ids
        assert "0007" in index and "seven" not in index and 7 not in index
        assert index["0007"].metadata == {"n": 7}
        with pytest.raises(KeyError, match="seven"):
            index["seven"]
        assert repr(index) == f"<Index {tmp_path / 'a.kh'}: 1,500 items, 16 bits>"
        (single,), (same,) = index.search(codes[7], k=3), index.search(codes[7:8], k=3)
        assert single.ids == same.ids and [hit.id for hit in single] == single.ids
        assert next(iter(single)).distance == 0
    assert repr(index) == f"<Index {tmp_path / 'a.kh'}, closed>"


def test_errors_can_be_caught_by_their_usual_kinds(tmp_path: Path) -> None:
    assert issubclass(UsageError, ValueError)
    with Index.create(tmp_path / "a.kh", bits=16) as index:
        with pytest.raises(ValueError, match="k = 0"):
            index.search(np.zeros(2, np.uint8), k=0)
        with pytest.raises(DuplicateId, match="'a' is given twice"):
            index.add(["a", "a"], np.zeros((2, 2), np.uint8))
        index.add(["a"], np.zeros((1, 2), np.uint8))
        with pytest.raises(DuplicateId, match="'a' is in the index already"):
            index.add(["a"], np.zeros((1, 2), np.uint8))
    with pytest.raises(kenthash.NoSuchIndex):
        Index.open(tmp_path / "b.kh")


def test_every_name_is_exported() -> None:
    for name in kenthash.__all__:
        assert getattr(kenthash, name) is not None
    assert dir(kenthash) == sorted(kenthash.__all__)
