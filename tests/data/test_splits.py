"""Splits against the words of the protocol, and against files that lie."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kenthash.data.splits import Protocol, Split, default_sizes, make_split
from kenthash.errors import DataError, UsageError


def test_validation_meets_training_items_in_their_share_of_the_database() -> None:
    split = make_split(200, 0, query=20, train=100, validation=10)  # 90 of the database's 180 are trained on
    assert np.array_equal(split.validation_database(), np.concatenate([split.validation, split.train[:10]]))
    everyone = make_split(120, 0, query=20, train=100, validation=10)  # 90 of 100
    assert np.array_equal(everyone.validation_database(), np.concatenate([everyone.validation, everyone.train]))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_20250_items_split_as_all_our_figures_do(seed: int) -> None:
    order = np.random.default_rng(seed).permutation(20250)
    split = make_split(20250, seed)
    assert np.array_equal(split.query, order[:2000])
    assert np.array_equal(split.train, order[2000:11000])
    assert np.array_equal(split.validation, order[11000:12000])
    assert np.array_equal(split.database, order[2000:])


def test_paper_protocol_trains_on_all_of_train_with_the_field_s_sizes() -> None:
    order = np.random.default_rng(7).permutation(24581)
    split = make_split(24581, 7, "paper")
    assert np.array_equal(split.query, order[:5000])
    assert np.array_equal(split.train, order[5000:15000])
    assert len(split.validation) == 0
    assert np.array_equal(split.database, order[5000:])


@pytest.mark.parametrize(
    ("items", "sizes"),
    [
        (122_218, (5000, 10_000)),
        (24_581, (5000, 10_000)),
        (20_250, (2000, 10_000)),
        (10_000, (1000, 5000)),
        (300, (30, 150)),
    ],
)
def test_sizes_scale_down(items: int, sizes: tuple[int, int]) -> None:
    assert default_sizes(items) == sizes


@given(items=st.integers(20, 3000), seed=st.integers(0, 2**32 - 1), protocol=st.sampled_from(["honest", "paper"]))
def test_every_split_keeps_queries_apart(items: int, seed: int, protocol: Protocol) -> None:
    split = make_split(items, seed, protocol)
    query, train, validation, database = (
        set(part.tolist()) for part in (split.query, split.train, split.validation, split.database)
    )
    assert query | database == set(range(items)) and not query & database
    assert train | validation <= database and not train & validation
    assert query and train and bool(validation) == (protocol == "honest")
    assert split.items == items


def test_given_sizes_are_taken_and_impossible_ones_refused() -> None:
    split = make_split(100, 0, query=10, train=50, validation=5)
    assert (len(split.query), len(split.train), len(split.validation), len(split.database)) == (10, 45, 5, 90)
    with pytest.raises(DataError, match="100 items cannot be split"):
        make_split(100, 0, query=60, train=50)
    with pytest.raises(DataError, match="at least 20"):
        make_split(19, 0)
    with pytest.raises(UsageError, match="seed -1"):
        make_split(100, -1)
    with pytest.raises(UsageError, match="choose one of honest, paper"):
        make_split(100, 0, "field")  # type: ignore[arg-type]


def test_save_and_load_keep_everything(tmp_path: Path) -> None:
    split = make_split(500, 3)
    split.save(tmp_path / "split.npz")
    back = Split.load(tmp_path / "split.npz")
    assert (back.protocol, back.seed, back.digest()) == ("honest", 3, split.digest())
    assert np.array_equal(back.train, split.train) and back.train.dtype == np.int64
    assert make_split(500, 4).digest() != split.digest()
    assert [path.name for path in tmp_path.iterdir()] == ["split.npz"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "array", "missing"])
def test_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "split.npz"
    make_split(500, 3).save(path)
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :])
    elif damage == "text":
        path.write_text("query: 1 2 3\n")
    elif damage == "array":
        with path.open("wb") as stream:
            np.save(stream, np.arange(3))
    else:
        path.unlink()
    with pytest.raises(DataError, match=r"split\.npz: not a saved split: ") as refused:
        Split.load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("part", "rows", "reason"),
    [
        ("query", [0, 1, 2], "not every item once"),  # item 2 is in the database as well
        ("database", [2, 3, 4, -5], "not every item once"),
        ("train", [2, 0], "not in the database"),  # learning from a query
        ("validation", [2], "share items"),
        ("train", [2.5], "not lists of row numbers"),
        ("train", [[2]], "not lists of row numbers"),
    ],
)
def test_split_that_lies_is_refused(tmp_path: Path, part: str, rows: list[object], reason: str) -> None:
    parts: dict[str, Any] = {"query": [0, 1], "train": [2, 3], "validation": [4], "database": [2, 3, 4, 5]}
    np.savez(tmp_path / "good.npz", protocol="honest", seed=0, **parts)
    assert Split.load(tmp_path / "good.npz").items == 6
    np.savez(tmp_path / "split.npz", protocol="honest", seed=0, **(parts | {part: rows}))
    with pytest.raises(DataError, match=reason):
        Split.load(tmp_path / "split.npz")
