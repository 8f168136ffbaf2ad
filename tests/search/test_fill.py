"""An index filled from Parquet shards: on every engine, resumed where it stopped, and counted in the end."""

import json
import math
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from components import need
from kenthash.cli import app
from kenthash.codes import Codes
from kenthash.data.manifest import CODES, Manifest, ShardRecord
from kenthash.errors import DataError
from kenthash.search import Index, fill
from kenthash.search.fill import fill_index, find_codes
from kenthash.search.metadata import JsonMetadata, check_metadata

Target = Callable[[str], str]
names = count()

VALUES: list[dict[str, object]] = [
    {},
    {"text": "é 😀", "year": 2024, "f": 1e30},
    {"labels": ["a", "b"], "none": None, "empty": [], "ok": True},
]


def metadata_of(number: int) -> dict[str, object]:
    return {**VALUES[number % 3], "n": number}


def write_codes(folder: Path, shards: dict[str, range], seed: int = 0, complete: bool = True) -> dict[str, Codes]:
    """Shards of items with these numbers, and their manifest; a code depends on the number and the seed."""
    parquet, pyarrow = need("pyarrow.parquet"), need("pyarrow")
    manifest = Manifest(folder, {"kind": CODES, "bits": 64, "model": "m", "pictures": "2"}, {"model_path": "/model"})
    codes: dict[str, Codes] = {}
    for shard, numbers in shards.items():
        own = {f"item {n}": np.random.default_rng([seed, n]).integers(0, 256, 8, np.uint8) for n in numbers}
        columns = {
            "id": list(own),
            "code": pyarrow.array([code.tobytes() for code in own.values()], pyarrow.binary(8)),
            "metadata": [json.dumps(metadata_of(number), ensure_ascii=False) for number in numbers],
        }
        (folder / shard).parent.mkdir(exist_ok=True)
        parquet.write_table(pyarrow.table(columns), folder / f"{shard}.parquet")
        manifest.add(ShardRecord(shard, str(seed), f"{shard}.parquet", len(own)))
        codes |= own
    if complete:
        manifest.complete(shards)
    return codes


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def add(folder: Path, index: str, *options: object) -> dict[str, int]:
    result = run("index", "add", "--codes", folder, "--index", index, "--json", *options)
    assert result.exit_code == 0, result.stderr
    report: dict[str, int] = json.loads(result.stdout)
    return report


def check_content(index: Index, codes: dict[str, Codes]) -> None:
    assert index.stats().items == len(codes)
    for item in index.get(list(codes)):
        assert item is not None and np.array_equal(item.code, codes[item.id])
        assert item.metadata == metadata_of(int(item.id.split()[1]))


def test_shards_fill_an_index_once(target: Target, tmp_path: Path) -> None:
    codes = write_codes(tmp_path / "codes", {"00": range(40), "sub/01": range(40, 70), "02": range(0)})
    index = target(f"filled{next(names)}")
    assert add(tmp_path / "codes", index) == {"added": 70, "changed": 0, "unchanged": 0}
    with Index.open(index) as opened:
        check_content(opened, codes)
        assert opened.notes()["model"] == "m" and opened.notes()["model_path"] == "/model"
        (hits,) = opened.search(codes["item 3"][None], k=1)
        assert hits.ids == ["item 3"]
    assert add(tmp_path / "codes", index) == {"added": 0, "changed": 0, "unchanged": 70}
    codes |= write_codes(tmp_path / "more", {"01": range(50, 80)}, seed=1)  # 20 with other codes, and 10 more
    assert add(tmp_path / "more", index) == {"added": 10, "changed": 20, "unchanged": 0}
    with Index.open(index) as opened:
        check_content(opened, codes)
        opened.remove(["item 79"])
    assert add(tmp_path / "more", index) == {"added": 1, "changed": 0, "unchanged": 29}


@pytest.mark.parametrize(("nested", "bits"), [([16, 64], 64), ([16], 128), (None, 128)])
def test_nested_codes_are_indexed_in_two_stages(tmp_path: Path, nested: list[int] | None, bits: int) -> None:
    """As `index add FOLDER` does with the same model; `nested` is missing from manifests of earlier versions."""
    parquet, pyarrow = need("pyarrow.parquet"), need("pyarrow")
    about = {"kind": CODES, "bits": 128, "model": "m", "pictures": "2"}
    manifest = Manifest(tmp_path / "codes", about, None if nested is None else {"nested": nested})
    codes = [np.random.default_rng(n).integers(0, 256, 16, np.uint8).tobytes() for n in range(20)]
    table = pyarrow.table({"id": [f"{n:02}" for n in range(20)], "code": pyarrow.array(codes, pyarrow.binary(16))})
    parquet.write_table(table, tmp_path / "codes" / "0.parquet")
    manifest.add(ShardRecord("0", "0", "0.parquet", 20))
    manifest.complete(["0"])
    assert add(tmp_path / "codes", str(tmp_path / "x.kh"))["added"] == 20
    with Index.open(tmp_path / "x.kh") as index:
        assert (index.bits, index.code_bits) == (bits, 128)
        (hits,) = index.search(np.frombuffer(codes[3], np.uint8)[None], 1)
        assert hits.ids == ["03"] and hits.proven


class Stopped(BaseException):
    """As if the process had been killed."""


def test_an_interrupted_filling_goes_on_where_it_stopped(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = write_codes(tmp_path / "codes", {f"{shard:02}": range(10 * shard, 10 * shard + 10) for shard in range(6)})
    monkeypatch.setattr(fill, "ROWS", 20)
    files, added = find_codes(tmp_path / "codes"), 0
    with Index.create(target(f"stopped{next(names)}"), 64) as index:
        add_items, get_items = index.add, index.get
        looked_up: list[str] = []

        def add_then_stop(*arguments: Any) -> None:
            nonlocal added
            if added == 2:
                raise Stopped
            add_items(*arguments)
            added += 1

        def get(ids: list[str]) -> Any:
            looked_up.extend(ids)
            return get_items(ids)

        monkeypatch.setattr(index, "add", add_then_stop)
        with pytest.raises(Stopped):
            fill_index(index, files)
        monkeypatch.setattr(index, "add", add_items)
        monkeypatch.setattr(index, "get", get)
        assert vars(fill_index(index, files)) == {"added": 20, "changed": 0, "unchanged": 40}
        if index.stats().engine != "milvus":  # where a part is whole or not there
            assert looked_up == ["item 0", "item 20", "item 40"]
        check_content(index, codes)


def test_milvus_imports_files(target: Target, tmp_path: Path) -> None:
    codes = write_codes(tmp_path / "codes", {"00": range(30), "01": range(30, 50)})
    index, staging = target(f"imported{next(names)}"), tmp_path / "staging"
    if not index.startswith("milvus://"):
        result = CliRunner().invoke(
            app, ["index", "add", "--codes", str(tmp_path / "codes"), "--index", index, "--staging", str(staging)]
        )
        assert "--staging is for --codes in an index on Milvus" in str(result.exception)
        return
    assert add(tmp_path / "codes", index, "--staging", staging) == {"added": 50, "changed": 0, "unchanged": 0}
    with Index.open(index) as opened:
        check_content(opened, codes)
        (hits,) = opened.search(codes["item 3"][None], k=1, filter="n = 3")
        assert hits.ids == ["item 3"]
    codes |= write_codes(tmp_path / "more", {"02": range(45, 60)}, seed=1)
    assert add(tmp_path / "more", index, "--staging", staging) == {"added": 10, "changed": 5, "unchanged": 0}
    with Index.open(index) as opened:
        check_content(opened, codes)
    assert list(staging.iterdir()) == []


@pytest.mark.parametrize(
    ("shards", "complete", "reason"),
    [
        ({"00": range(3)}, False, "not complete: run `kenthash hash` again"),
        (
            {"00": range(3), "01": range(2, 5)},
            True,
            "6 codes, but the index has 5 items: some ids occur more",
        ),
    ],
)
def test_what_is_not_whole_is_refused(
    tmp_path: Path, shards: dict[str, range], complete: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill, "ROWS", 3)
    write_codes(tmp_path / "codes", shards, complete=complete)
    with pytest.raises(DataError, match=reason):
        run("index", "add", "--codes", tmp_path / "codes", "--index", tmp_path / "a.kh")


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    parquet, pyarrow = need("pyarrow.parquet"), need("pyarrow")
    write_codes(tmp_path / "codes", {"00": range(3)})
    table = parquet.read_table(tmp_path / "codes" / "00.parquet")
    for changed, reason in (
        (table.slice(1), "has 2 codes, but 3 were written: damaged"),
        (table.set_column(2, "metadata", [["{}", '{"a": {}}', "{}"]]), "metadata of 'item 1': 'a' is '{}'"),
        (table.set_column(2, "metadata", [["{}", "[]", "{}"]]), "metadata of 'item 1': must be a JSON object"),
        (table.set_column(0, "id", pyarrow.array(["a", "\n", "c"])), "no control characters"),
    ):
        parquet.write_table(changed, tmp_path / "codes" / "00.parquet")
        with pytest.raises(DataError, match=reason):
            run("index", "add", "--codes", tmp_path / "codes", "--index", tmp_path / "a.kh")
    with Index.open(tmp_path / "a.kh") as index:
        assert index.stats().items == 0


texts = st.text(st.sampled_from('"\\{}[],: \n\ud83d\x00aé'), max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | texts
entries = st.dictionaries(texts | st.sampled_from(["a", "b"]), scalars | st.lists(scalars, max_size=2), max_size=3)
written = st.builds(
    lambda entry, ascii, compact: json.dumps(entry, ensure_ascii=ascii, separators=(",", ":") if compact else None),
    entries, st.booleans(), st.booleans(),
)  # fmt: skip
pieces = st.sampled_from(['{"a": "', '"}', "{", "}", ", ", '"a": 1', "[", "]", "\n", '{"a": 1}', "1"])
fragments = st.lists(pieces, max_size=5).map("".join)


@settings(max_examples=400, deadline=None)
@given(st.lists(written | fragments, max_size=4))
def test_metadata_parsed_together_are_those_parsed_one_by_one(texts: list[str]) -> None:
    """Whatever the texts are, also if several of them make sense only together."""

    def one_by_one() -> list[Any]:
        values = [json.loads(text) for text in texts]
        for value in values:
            check_metadata("", value)
        return values

    ids = [str(number) for number in range(len(texts))]
    try:
        expected = one_by_one()
    except (ValueError, DataError):
        with pytest.raises(DataError):
            JsonMetadata(ids, texts)
        return
    together = JsonMetadata(ids, texts)
    assert list(together) == expected
    assert [json.loads(text, parse_constant=lambda name: pytest.fail(name)) for text in together.texts] == expected
    assert all(not isinstance(v, float) or math.isfinite(v) for entry in together for v in entry.values())
