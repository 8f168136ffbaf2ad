"""The search bench: all libraries give the same answers, and the codes are distributed as it says."""

import numpy as np
import pytest
from typer.testing import CliRunner

from components import need
from kenthash.bench import search as bench
from kenthash.cli import app
from kenthash.errors import UsageError


def test_contestants_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    need("faiss")
    monkeypatch.setattr(bench, "BATCH", 40)
    monkeypatch.setattr(bench, "SINGLE", 8)
    (record,) = bench.bench_search([5000], ["clustered"], rounds=1)
    ours = {name: about for name, about in record["contestants"].items() if name.startswith("kenthash")}
    assert len(ours) == 3
    assert all(about["equal"] and about["single_ms"] > 0 and about["batch_ratio"] > 0 for about in ours.values())
    sizes = [about["bytes_an_item"] for about in ours.values()]
    assert sizes[0] * 5000 == 4096 + (10 + 5) * (4096 + 8)  # header; pages of codes and of rows with their checksums
    assert sizes == sorted(sizes)
    assert "5,000 clustered codes" in bench.render([record], bench.bench_index(2000))


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
