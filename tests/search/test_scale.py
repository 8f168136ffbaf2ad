"""The figures of docs/scale.md are what its script prints, and the script's arithmetic is right."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "scale.py"


def test_page_is_what_the_script_prints() -> None:
    printed = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True).stdout
    text = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    inside = text.partition("<!-- scripts/scale.py prints from here -->")[2].partition("<!-- to here -->")[0]
    assert inside.strip() == printed.strip() and "10,000,000,000" in printed


def test_ten_billion_by_hand() -> None:
    """8 + 24 + 97 = 129 bytes an item are 1.29 TB; in 512 MiB, 2,403 segments. 300 bytes are 3 TB, in 96 GB a node
    32 nodes of 16 cores; 10^10 codes of 3.9 ns are 39 s of one core, 76 ms of 512."""
    cluster = runpy.run_path(str(SCRIPT))["Cluster"](10**10)
    assert (cluster.stored, cluster.segments, cluster.memory, cluster.nodes) == (1.29e12, 2403, 3e12, 32)
    assert cluster.work == pytest.approx(39) and cluster.work / cluster.cores == pytest.approx(0.0762, abs=1e-4)
    assert cluster.price == pytest.approx((32 + 4) * 730 + 1290 * 0.023)


def test_encoding_by_hand() -> None:
    """16 cores of .12 s per picture are 133.3 pictures per second, on Ray .97 of that; a million take 2.148 hours, at a
    dollar each; a billion on 100 machines, ten times that."""
    [node] = [m for m in runpy.run_path(str(SCRIPT))["MACHINES"] if "with VNNI" in m.name]
    assert node.rate == pytest.approx(16 / 0.12 * 0.97)
    assert node.cost(10**6) == pytest.approx(2.1478, abs=1e-4)
    assert node.hours(10**9, 100) == pytest.approx(21.478, abs=1e-3)
