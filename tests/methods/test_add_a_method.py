"""The example of docs/add-a-method.md, installed as the package that the page describes, trains and learns."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from packs import write_pack

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the page's package is installed into."""
    page = (ROOT / "docs" / "add-a-method.md").read_text()
    source, installed = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name, language in (("plain_method.py", "python"), ("pyproject.toml", "toml")):
        (code,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
        (source / name).write_text(code)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(installed)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return installed


def kenthash(*words: str, path: Path) -> subprocess.CompletedProcess[str]:
    folders = [str(path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, "-m", "kenthash", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_documented_package_adds_a_method_that_learns(package: Path, tmp_path: Path) -> None:
    pack = write_pack(tmp_path / "pack")
    labels = np.load(pack / "labels.npy").astype(int)
    chance = (labels @ labels.T > 0).mean()
    train = f"train --method plain --bits 16 --data {pack} --out {tmp_path / 'run'} --json".split()
    trained = kenthash(*train, "--set", "batch=50", "--set", "optimizer.lr=0.01", path=package)
    metrics = json.loads(trained.stdout)
    assert metrics["method"] == "plain"
    assert metrics["i2t"]["map"] > chance + 0.15, chance


def test_a_package_without_a_usable_method_is_named_and_left_out(package: Path, tmp_path: Path) -> None:
    (info,) = package.glob("*.dist-info")
    broken = tmp_path / info.name
    broken.mkdir()
    (broken / "METADATA").write_text((info / "METADATA").read_text())
    (broken / "entry_points.txt").write_text("[kenthash.methods]\nplain = no_such_module:Plain\ntwice = broken:Twice\n")
    (tmp_path / "broken.py").write_text("from kenthash.methods.kdph import Kdph\nclass Twice(Kdph): pass\n")
    result = kenthash("train", "--data", "x", "--method", "plain", "--out", "y", path=tmp_path)
    assert result.returncode == 2 and "method 'plain': choose one of" in result.stderr
    warnings = [line for line in result.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 2 and all("of plain-method is left out" in line for line in warnings)
    assert "No module named 'no_such_module'" in warnings[0] and "'kdph' of another method" in warnings[1]
