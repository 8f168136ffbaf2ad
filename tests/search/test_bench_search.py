"""The search bench: all libraries give the same answers, and the codes are distributed as it says."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from components import need
from kenthash.bench import index as index_bench
from kenthash.bench import search as bench
from kenthash.bench import vectors as vectors_bench
from kenthash.bench.peers import PEERS
from kenthash.bench.start import bench_start, measure_rclip
from kenthash.cli import app
from kenthash.errors import KenthashError, UsageError


def test_contestants_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    need("faiss")
    monkeypatch.setattr(bench, "BATCH", 40)
    monkeypatch.setattr(bench, "SINGLE", 8)
    (record,) = bench.bench_search([5000], ["clustered"], rounds=1)
    contestants = record["contestants"]
    ours = {name: about for name, about in contestants.items() if name.startswith("kenthash")}
    assert len(ours) == 6 and len(contestants) == 6 + len(PEERS)
    assert all(about["equal"] and about["single_ms"] > 0 and about["batch_ratio"] > 0 for about in ours.values())
    assert contestants["usearch exact"]["equal"]
    for name in ("faiss MultiHash", "faiss IVF", "faiss HNSW", "usearch b1"):
        assert 0.2 < contestants[name]["recall"] <= 1, name
    sizes = [about["bytes_an_item"] for about in list(ours.values())[:3]]
    assert sizes[0] == 12 and sizes == sorted(sizes)
    assert "5,000 clustered codes" in bench.render([record])


def test_indexes_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WRITES": 4, "PAUSE": 0, "QUERIES": 10, "PART": 1500}.items():
        monkeypatch.setattr(index_bench, name, value)
    figures = index_bench.bench_index(2000)
    assert (figures["on_disk_id"], figures["on_disk_code"], figures["on_disk_metadata"]) == (24, 8, 97)
    assert figures["on_disk_ours_in_sqlite"] > 5 and figures["after_write_ms_median"] > 0
    stages = index_bench.bench_stages(3000)
    for recall in stages["recall"].values():
        assert recall["first"] - 0.1 <= recall["stages"] <= recall["all"] + 0.1
    assert stages["recall"][index_bench.NOISES[0]]["stages"] > 0.9
    assert set(stages["same_hits"].values()) == {1.0}  # so few items are all ranked by whole codes
    assert "two stages" in index_bench.render_stages(stages) and "on_disk_id" in index_bench.render_index(figures)


def test_codes_beside_vectors() -> None:
    need("faiss")
    latencies = vectors_bench.bench_vectors(3000)
    names = {size: set(by_name) for size, by_name in latencies["query_ms"].items()}
    assert names[8] == {"code", "code, real query", "PQ", "int8", "float32"}
    assert names[32] == names[128] == names[8] | {"RaBitQ", "code, 8 bytes then all"}
    assert all(ms > 0 for by_name in latencies["query_ms"].values() for ms in by_name.values())
    assert "RaBitQ" in vectors_bench.render_vectors(latencies)


def test_codes_cluster_as_described() -> None:
    codes, _ = bench.make_codes(1000, 1, "clustered")  # one centre
    bits = np.unpackbits(codes, axis=1)
    flipped = np.minimum(bits.mean(axis=0), 1 - bits.mean(axis=0))
    assert abs(flipped.mean() - 13 / 128) < 0.005
    uniform, _ = bench.make_codes(1000, 1, "uniform")
    assert abs(np.unpackbits(uniform).mean() - 0.5) < 0.01


@pytest.mark.parametrize(
    ("option", "value"), [("--sizes", "many"), ("--sizes", "1000,"), ("--sizes", "5"), ("--kinds", "clusterd")]
)
def test_misuse_is_one_line(option: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"^{option} {value}: [^\n]+$"):
        CliRunner().invoke(app, ["bench", "search", option, value, "--durable", "0"], catch_exceptions=False)


def test_a_search_that_fails_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(KenthashError, match=r"^what was to be measured failed: [^\n]*absent\.kh[^\n]*$"):
        bench_start(str(tmp_path / "absent.kh"), rounds=1)


def test_rclip_is_measured_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its searches run in a folder of photos, where a relative path would lead elsewhere."""
    (tmp_path / "bin").mkdir()
    for name, prints in (("rclip", "photo.jpg"), ("python", "1000000")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\necho {prints}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    figures = measure_rclip(Path("bin/rclip"), tmp_path, rounds=1)
    assert figures["rclip: install without its weights, MB"] == 1 and "rclip: cold search, processor s" in figures
