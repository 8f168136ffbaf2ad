"""What comes into an index is checked once, and refused in one line that says what is wrong."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.search import Index
from kenthash.search.servers.addresses import without_password

CODE = np.zeros((1, 8), np.uint8)


@pytest.fixture
def index(tmp_path: Path) -> Any:
    with Index.create(tmp_path / "x.kh", 64) as opened:
        yield opened


@pytest.mark.parametrize("name", ["", "x" * 1025, "a\nb", "a\x00b", "a\x1b[31m", "\ud800"])
def test_bad_ids(index: Index, name: str) -> None:
    with pytest.raises(DataError, match=r"^id [^\n]*$"):
        index.add([name], CODE)


@pytest.mark.parametrize(
    "name", ["a b", "ü/😀.jpg", "x" * 1024, "Screenshot at 10.00\u202fAM.png", "'; drop table items; --"]
)
def test_good_ids(index: Index, name: str) -> None:
    index.add([name], CODE)
    assert index.search(CODE)[0].ids == [name]


@pytest.mark.parametrize(
    "entry",
    [
        {"a": {"b": 1}}, {"a": [1]}, {"a": float("nan")}, {"a": 2**63}, {"": 1}, {'a"b': 1}, {"a\\b": 1}, {"a": "\x00"},
        {"a": "x" * 70_000}, {"a": "\ud800"}, {3: 1}, {"a": b"x"}, [],
    ],
)  # fmt: skip
def test_bad_metadata(index: Index, entry: Any) -> None:
    with pytest.raises(DataError, match=r"^metadata of 'a': [^\n]*$"):
        index.add(["a"], CODE, [entry])
    assert index.stats().items == 0


def test_metadata_comes_back_as_it_was(index: Index) -> None:
    entry: Any = {"s": 'it\'s\n"é😀"', "i": -(2**63), "f": 0.1, "b": True, "n": None, "l": ["", "a"], "empty": []}
    index.add(["a"], CODE, [entry])
    (item,) = index.get(["a"])
    assert item is not None and item.metadata == entry and item.code.tolist() == [0] * 8
    assert index.search(CODE, filter="i < -9223372036854775807 and b = true and l has ''")[0].ids == ["a"]


def test_a_folder_is_no_index(tmp_path: Path) -> None:
    for opened in (Index.open, lambda target: Index.open_or_create(target, 64)):
        with pytest.raises(UsageError, match=r"a folder: an index is a file, such as \.kenthash\.kh"):
            opened(tmp_path)


@pytest.mark.parametrize(
    "target", ["", "milvus://", "milvus://:19530/x", "milvus://me:secret@/x", "milvus://host/", "milvus://host/a b"]
)
def test_an_address_that_names_no_index(target: str) -> None:
    with pytest.raises(UsageError, match=r"^[^\n]+ ") as caught:
        Index.open(target)
    assert "None" not in str(caught.value) and "secret" not in str(caught.value)
    assert target or "folder" not in str(caught.value)


def test_bad_calls(index: Index, tmp_path: Path) -> None:
    calls: list[Any] = [
        lambda: index.add(["a"], CODE.astype(np.int64)),
        lambda: index.add(["a"], np.zeros((1, 4), np.uint8)),
        lambda: index.add(["a", "b"], CODE),
        lambda: index.add(["a", "a"], np.zeros((2, 8), np.uint8)),
        lambda: index.add([3], CODE),  # type: ignore[list-item]
        lambda: index.search(CODE, k=0),
        lambda: index.search(CODE, k=10_001),
        lambda: index.search(CODE, radius=65),
        lambda: index.search(CODE[0, :3]),
        lambda: index.search(CODE, filter="nonsense"),
        lambda: index.search(CODE, filter="place = '\ud800'"),
        lambda: index.get(["half\udfff"]),
        lambda: index.remove(["zero\0"]),
        lambda: index.list_ids("half\ud800"),
        lambda: index.list_ids(limit=0),
        lambda: index.list_ids(limit=1 << 70),
        lambda: index.note("model_path", "half\udfff"),
        lambda: Index.create(tmp_path / "y.kh", 12),
        lambda: Index.create(tmp_path / "y.kh", 64, form="huge"),
        lambda: Index.create("/dev/null/x.kh", 64),
        lambda: Index.open("http://example.org/x"),
    ]
    for call in calls:
        with pytest.raises(KenthashError, match=r"^[^\n]+$"):
            call()
    assert index.stats().items == 0 and not (tmp_path / "y.kh").exists()


def test_open_or_create(tmp_path: Path) -> None:
    Index.open_or_create(tmp_path / "y.kh", 32).close()
    Index.open_or_create(tmp_path / "y.kh", 32).close()
    with pytest.raises(UsageError, match="holds codes of 32 bits"):
        Index.open_or_create(tmp_path / "y.kh", 64)


def test_several_that_create_one_index_at_once_share_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for turn in range(20):
            path, together = tmp_path / f"{turn}.kh", Barrier(4)

            def add(name: str, path: Path = path, together: Barrier = together) -> None:
                together.wait()
                with Index.open_or_create(path, 64) as index:
                    index.add([name], CODE)

            list(pool.map(add, "abcd"))
            with Index.open(path) as index:
                assert index.list_ids() == list("abcd")


def test_the_id_that_was_there_is_named(index: Index) -> None:
    """Not one that the refused batch itself brought."""
    index.add(["b"], CODE)
    with pytest.raises(DataError, match="id 'b' is in the index already"):
        index.add(["a", "b", "c"], np.zeros((3, 8), np.uint8))
    assert index.list_ids() == ["b"]


def test_no_message_holds_a_password() -> None:
    with pytest.raises(UsageError, match=r"^http://example\.org/x: an index is") as caught:
        Index.open("http://me:secret@example.org/x")
    assert "secret" not in str(caught.value)
    assert without_password("postgresql://host/db?password=secret&table=pics") == "postgresql://host/db?table=pics"
    assert "secret" not in without_password("postgresql://me:secret?@host/db") + without_password(
        "postgresql://host/db?password=a@secret"
    )
