"""Near-identical pictures: pairs against a slow count, and edits of photos among others in a real index."""

import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from painted import AverageHash
from PIL import Image
from typer.testing import CliRunner

from kenthash.bench.duplicates import bench_duplicates
from kenthash.cli import app
from kenthash.search import Index
from kenthash.search.duplicates import find_duplicates, near_groups, near_pairs
from kenthash.search.folders.folder import sync_folder
from kenthash.search.folders.walk import walk_folder
from photos import photo


@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 30))
def test_pairs_are_those_of_a_slow_count(seed: int, limit: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    prints = rng.integers(0, 256, (size, 12), np.uint8) & rng.integers(0, 256, (size, 12), np.uint8)
    bits = np.unpackbits(prints, axis=1)
    expected = {(a, b) for a in range(size) for b in range(a + 1, size) if (bits[a] != bits[b]).sum() <= limit}
    assert set(near_pairs(prints, limit)) == expected
    connected = {i for pair in expected for i in pair}
    groups = near_groups(prints, limit)
    assert sorted(i for group in groups for i in group) == sorted(connected)
    assert all(any(a in group and b in group for group in groups) for a, b in expected)


def test_edited_copies_are_grouped_largest_first(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(6):
        photo(seed, (640, 480)).save(folder / f"{seed}.jpg", quality=92)
    first = Image.open(folder / "1.jpg")
    first.resize((320, 240)).save(folder / "small.jpg")
    first.save(folder / "again.jpg", quality=60)
    with Index.create(folder / ".kenthash.kh", bits=64) as index:
        sync_folder(index, walk_folder(folder), AverageHash())
        index.add(["code only"], np.zeros((1, 8), np.uint8))
        duplicates = find_duplicates(index)
    assert [[item.id for item in group] for group in duplicates.groups] == [["1.jpg", "again.jpg", "small.jpg"]]
    assert (duplicates.compared, duplicates.without) == (8, 1)
    words = ["index", "duplicates", "--index", str(folder / ".kenthash.kh")]
    result = CliRunner().invoke(app, words)
    assert result.stdout.startswith("3 pictures\n  640 × 480") and str(folder / "small.jpg") in result.stdout
    assert "compared 8; groups: 1, copies: 2" in result.stderr and "without a fingerprint: 1;" in result.stderr
    printed = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert [item["path"] for item in printed["groups"][0]] == [
        str(folder / n) for n in ("1.jpg", "again.jpg", "small.jpg")
    ]


def test_benchmark_counts_pairs(tmp_path: Path) -> None:
    for seed in range(3):
        photo(seed, (160, 120)).save(tmp_path / f"{seed}.png")
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    exact, all_pairs = bench_duplicates(tmp_path, 10, limit=12), bench_duplicates(tmp_path, 10, limit=96)
    assert exact.photos == 3 and exact.recall["JPEG 60"] == exact.recall["half size"] == 1.0
    assert all_pairs.pair_recall == 1.0 and all_pairs.wrong == 3 * 25
    assert all_pairs.precision == 30 / 105
