"""Exported codes are read back the same, and faiss finds with them what the index finds."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from components import need
from kenthash.cli import app
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.search.export import export_index, read_codes
from kenthash.search.fill import find_codes
from kenthash.search.index import Index

KINDS = ["npy", "faiss", "parquet"]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    rng = np.random.default_rng(0)
    ids = [f"{'é日 z'[n % 4]}/{n}.jpg" for n in rng.permutation(500).tolist()]
    metadata = [{"n": n, "labels": ["it's", "😀"][: n % 3], "none": None, "x": n / 7} for n in range(500)]
    created = Index.create(tmp_path / "a.kh", bits=72)
    created.add(ids, rng.integers(0, 256, (500, 9), dtype=np.uint8), metadata)
    return created


def needs(kind: str) -> None:
    if kind != "npy":
        need({"faiss": "faiss", "parquet": "pyarrow"}[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(index: Index, tmp_path: Path, kind: str) -> None:
    needs(kind)
    out = tmp_path / ("out.parquet" if kind == "parquet" else "out")
    assert export_index(index, out, kind) == 500
    ids, codes, metadata = read_codes(out)
    assert ids == sorted(ids) and len(ids) == 500
    with Index.create(tmp_path / "b.kh", bits=72) as other:
        other.add(ids, codes, metadata)
        for item_id, a, b in zip(ids, index.get(ids), other.get(ids), strict=True):
            assert a and b and a.id == b.id == item_id and a.metadata == b.metadata and (a.code == b.code).all()
    with pytest.raises(DataError, match="exists already"):
        export_index(index, out, kind)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("kind", KINDS)
def test_empty_index(tmp_path: Path, kind: str) -> None:
    needs(kind)
    out = tmp_path / ("out.parquet" if kind == "parquet" else "out")
    with Index.create(tmp_path / "a.kh", bits=64) as index:
        assert export_index(index, out, kind) == 0
        with pytest.raises(UsageError, match="choose one of"):
            export_index(index, tmp_path / "other", kind.upper())
        with pytest.raises(KenthashError, match=r"^/dev/null/out: cannot be written: [^\n]+$"):
            export_index(index, "/dev/null/out", kind)
    ids, codes, metadata = read_codes(out)
    assert (ids, codes.shape, metadata) == ([], (0, 8), [])


def test_faiss_finds_the_same(index: Index, tmp_path: Path) -> None:
    faiss = need("faiss")
    export_index(index, tmp_path / "out", "faiss")
    flat = faiss.read_index_binary(str(tmp_path / "out" / "codes.faiss"))
    ids = (tmp_path / "out" / "ids.txt").read_text().splitlines()
    queries = np.random.default_rng(1).integers(0, 256, (5, 9), dtype=np.uint8)
    distances, rows = flat.search(queries, 500)
    for query, (hits, far, row) in enumerate(zip(index.search(queries, k=500), distances, rows, strict=True)):
        assert hits.distances.tolist() == far.tolist(), query
        assert dict(zip(hits.ids, hits.distances.tolist(), strict=True)) == {
            ids[i]: d for i, d in zip(row.tolist(), far.tolist(), strict=True)
        }


def test_codes_of_other_tools(tmp_path: Path) -> None:
    """Metadata may be missing; parts that do not fit together are refused in one line."""
    codes = np.arange(24, dtype=np.uint8).reshape(3, 8)
    np.save(tmp_path / "codes.npy", codes)
    (tmp_path / "ids.txt").write_text("a\nb\nc\n")
    ids, read, metadata = read_codes(tmp_path / "codes.npy")
    assert ids == ["a", "b", "c"] and (read == codes).all() and metadata == [{}, {}, {}]
    (tmp_path / "metadata.jsonl").write_text('{"n": 1}\n[2]\n{}\n')
    _refused(tmp_path, r"metadata\.jsonl: metadata of item 2")
    (tmp_path / "metadata.jsonl").write_text("{}\n" * 4)
    _refused(tmp_path, "3 codes, 3 ids and 4 metadata")
    np.save(tmp_path / "codes.npy", codes.astype(np.int64))
    _refused(tmp_path, "int64")
    np.save(tmp_path / "codes.npy", np.array([{}, {}, {}]), allow_pickle=True)
    _refused(tmp_path, r"codes\.npy")
    (tmp_path / "codes.npy").unlink()
    _refused(tmp_path, "holds no codes")
    _refused(tmp_path / "absent", "no such")


def test_parquet_of_other_tools(tmp_path: Path) -> None:
    pyarrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    path = tmp_path / "codes.parquet"
    parquet.write_table(pyarrow.table({"id": ["a", "b"], "code": [b"12345678", b"abcdefgh"]}), path)
    ids, codes, metadata = read_codes(path.rename(tmp_path / "codes"))
    assert ids == ["a", "b"] and codes.tobytes() == b"12345678abcdefgh" and metadata == [{}, {}]
    parquet.write_table(pyarrow.table({"id": ["a", "b"], "code": [b"1234", b"abcdefgh"]}), path)
    _refused(path, "all of one length")
    parquet.write_table(pyarrow.table({"id": ["a", None], "code": [b"1234", b"abcd"]}), path)
    _refused(path, "none of them missing")
    parquet.write_table(pyarrow.table({"name": ["a"]}), path)
    _refused(path, "has the columns name")
    empty = pyarrow.schema([("id", pyarrow.string()), ("code", pyarrow.binary())])
    parquet.write_table(empty.empty_table(), path)
    _refused(path, "holds no codes")
    path.write_bytes(json.dumps({"not": "parquet"}).encode())
    _refused(path, "not a readable Parquet file")


@pytest.mark.parametrize("kind", ["cut", "other"])
def test_faiss_of_other_tools(tmp_path: Path, kind: str) -> None:
    faiss = need("faiss")
    path = tmp_path / "codes.faiss"
    (tmp_path / "ids.txt").write_text("a\n")
    flat = faiss.IndexBinaryFlat(64) if kind == "cut" else faiss.IndexBinaryHash(64, 8)
    flat.add(np.zeros((1, 8), np.uint8))
    faiss.write_index_binary(flat, str(path))
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    _refused(path, "not a readable faiss" if kind == "cut" else "IndexBinaryFlat only")


def _refused(path: Path, why: str) -> None:
    with pytest.raises(DataError, match=why) as refused:
        read_codes(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_of_two_stages_make_an_index_of_two_stages(tmp_path: Path, kind: str) -> None:
    needs(kind)
    codes = np.random.default_rng(0).integers(0, 256, (50, 24), np.uint8)
    with Index.create(tmp_path / "a.kh", 128, 192) as index:
        index.add([f"{i:02}" for i in range(50)], codes)
        out = tmp_path / ("out.parquet" if kind == "parquet" else "out")
        export_index(index, out, kind)
    run = CliRunner().invoke(app, ["index", "add", "--codes", str(out), "--index", str(tmp_path / "b.kh")])
    assert run.exit_code == 0, run.output
    with Index.open(tmp_path / "b.kh") as copy:
        assert (copy.bits, copy.code_bits, len(copy)) == (128, 192, 50)
        (hits,) = copy.search(codes[7:8], 1)
        assert hits.ids == ["07"] and hits.proven


def test_a_damaged_list_of_nested_bits(tmp_path: Path) -> None:
    with Index.create(tmp_path / "a.kh", 64, 128) as index:
        export_index(index, tmp_path / "out", "npy")
    file = tmp_path / "out" / "nested.json"
    assert file.read_text() == "[64]"
    for text in ("{", "64", "[-8]", '["64"]', "[true]", "[60]"):
        file.write_text(text)
        with pytest.raises(DataError, match="it must be a list of numbers of bits"):
            find_codes(tmp_path / "out")
    file.unlink()
    assert find_codes(tmp_path / "out").stages == (128, None)
