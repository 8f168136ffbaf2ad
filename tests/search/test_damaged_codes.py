"""A damaged code file causes no wrong answer and no crash. It is rebuilt from the store, with one line in the log."""

import json
import logging
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kenthash.codes import hamming
from kenthash.errors import DataError
from kenthash.search import Index
from kenthash.search.local import checksums, kernels, local_engine, mih
from kenthash.search.local.sqlite import sqlite3

MUTATIONS = 40  # of the 2,000 and more that `python tests/search/damage.py codes 0 2000` tries
CODES = np.random.default_rng(0).integers(0, 256, (2000, 8), np.uint8)
IDS = [f"{i:04}" for i in range(2000)]
QUERIES = np.random.default_rng(1).integers(0, 256, (3, 8), np.uint8)


def test_mutations_give_right_answers() -> None:
    command = [sys.executable, str(Path(__file__).with_name("damage.py")), "codes", "0", str(MUTATIONS)]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(completed.stdout)["counts"] == {"right": MUTATIONS}, completed.stdout


def test_two_flipped_bits_and_two_swapped_words_change_the_checksum() -> None:
    """If all blocks with one bit flipped have checksums of their own, no two flipped bits cancel each other."""
    words = checksums.BLOCK // 8
    data = np.random.default_rng(0).integers(0, 1 << 63, words, np.uint64)
    for content in (data, np.zeros(words, np.uint64)):
        sums = {int(kernels.checksum(content, 0))}
        for word in range(words):
            for bit in range(64):
                content[word] ^= np.uint64(1 << bit)
                sums.add(int(kernels.checksum(content, 0)))
                content[word] ^= np.uint64(1 << bit)
        assert len(sums) == 1 + 64 * words
    before = int(kernels.checksum(data, 0))
    for word in range(words - 4):
        for other in range(word + 1, word + 5):
            data[[word, other]] = data[[other, word]]
            assert int(kernels.checksum(data, 0)) != before
            data[[word, other]] = data[[other, word]]


def test_numpy_computes_the_same_checksums() -> None:
    data = np.random.default_rng(0).integers(0, 1 << 63, 5 * checksums.BLOCK // 8, np.uint64)
    assert checksums.numpy_checksums(data, 1, 5).tolist() == [
        int(kernels.checksum(data, block)) for block in range(1, 5)
    ]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mih, "MIN_ITEMS", 1000)  # so that a small index has tables
    path = tmp_path / "x.kh"
    with Index.create(path, 64) as index:
        index.add(IDS, CODES)
        index.compact()
    return path


def code_file(path: Path) -> Path:
    (file,) = path.parent.glob(f"{path.name}.*.codes")
    return file


def flip(path: Path, place: int) -> None:
    with code_file(path).open("r+b") as stream:
        stream.seek(place)
        (byte,) = stream.read(1)
        stream.seek(place)
        stream.write(bytes([byte ^ 16]))


def check(index: Index) -> None:
    true = hamming(QUERIES, CODES)
    for distances, hits in zip(true, index.search(QUERIES, 20), strict=True):
        best = sorted((int(d), name) for d, name in zip(distances, IDS, strict=True))[:20]
        assert list(zip(hits.distances.tolist(), hits.ids, strict=True)) == best


def test_a_damaged_file_is_rebuilt_with_one_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = code_file(path)
    flip(path, 4096 + 999)
    with Index.open(path) as index:
        check(index)
        check(index)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "\n" not in record.getMessage()
    assert record.getMessage().startswith(f"{before}: ") and "rebuilding" in record.getMessage()
    after = code_file(path)
    assert after != before
    with Index.open(path) as index:
        check(index)
    assert code_file(path) == after and len(caplog.records) == 1


def test_damage_while_the_index_is_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "FILE_CHECK_SECONDS", 0)
    with Index.open(path) as index:
        for place in (5000, 4096 + 8 * 2000 + 50):  # in the codes, in the rows
            check(index)
            flip(path, place)
            check(index)


def test_a_damaged_file_that_cannot_be_rebuilt_is_not_used(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flip(path, 5000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Index.create(path.with_name("y.kh"), 64) as other:  # compiles what could not be kept under the limit
        other.add(IDS, CODES)
        check(other)
    with Index.open(path) as index:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, before[1]))
        try:
            check(index)
            index.remove([IDS[7]])
            assert index.search(CODES[7:8], 1, radius=0)[0].ids == []
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot be written" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(
    "change", ["UPDATE items SET code = zeroblob(8) WHERE id = '0005'", "DELETE FROM items WHERE id = '0005'"]
)
def test_a_store_that_differs_from_a_whole_code_file_is_damaged(path: Path, change: str) -> None:
    before = code_file(path).read_bytes()
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with Index.open(path) as index:
        assert index.search(CODES[:1], 1)[0].ids == ["0000"]
        with pytest.raises(DataError, match=r"x\.kh: damaged: [^\n]*restore it from a copy"):
            index.search(CODES[5:6], 1)
    assert code_file(path).read_bytes() == before  # not rebuilt from a damaged store
