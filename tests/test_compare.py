"""Comparisons: controls, tables, winners, and the whole command on a small pack."""

import csv
import subprocess
import sys

import numpy as np
import pytest

from components import need
from kenthash.codes import hamming, unpack
from kenthash.data.splits import make_split
from kenthash.encoders.features import FeaturePack
from kenthash.errors import UsageError
from kenthash.evaluation import map_of
from kenthash.evaluation.real_valued import real_valued_map
from kenthash.files import read_json
from kenthash.studies.compare import parse_methods
from kenthash.studies.controls import CONTROLS, _itq, apply_control
from kenthash.studies.results import Cell, Row, winners
from kenthash.studies.tables import latex, markdown
from kenthash.studies.tuning import propose, tuned_layers
from packs import write_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return write_pack(tmp_path_factory.mktemp("data") / "pack", items=600, noise=0.3)


def test_every_control_finds_more_than_chance(pack):
    need("faiss")
    features = FeaturePack.open(pack)
    split = make_split(len(features), seed=0)
    labels = features.dataset.labels[split.query], features.dataset.labels[split.database]
    chance = float(np.mean(labels[0].astype(int) @ labels[1].T.astype(int) > 0))
    for name in CONTROLS:
        query, database = apply_control(name, features, split, bits=16)
        score = map_of if query.image.dtype == np.uint8 else real_valued_map
        assert score(query.image, database.text, *labels) > chance + 0.1, name
        assert score(query.text, database.image, *labels) > chance + 0.1, name


def test_itq_loses_less_by_signing_than_its_start():
    rng = np.random.default_rng(1)
    vectors = (rng.standard_normal((400, 8)) * [9, 5, 3, 2, 1, 1, 1, 1]).astype(np.float32)

    def loss(rotation):
        turned = vectors @ rotation
        return float(np.square(np.where(turned >= 0, 1, -1) - turned).sum())

    learned = _itq(vectors, 8, seed=0)
    assert learned @ learned.T == pytest.approx(np.eye(8), abs=1e-5)
    assert loss(learned) < loss(_itq(vectors, 8, seed=0, rounds=0))


def test_only_a_clear_winner_is_bold():
    rng = np.random.default_rng(0)
    base = rng.random(200)
    cell = {"good": base + 0.1, "same": base + 0.1 + rng.normal(0, 1e-4, 200), "poor": base}
    rows = {
        name: Row(name, "2026", "paper", {("i2t", 16): Cell((float(ap.mean()),), ap=ap)}) for name, ap in cell.items()
    }
    assert winners([rows["good"], rows["poor"]]) == {("i2t", 16): "good"}
    assert winners(list(rows.values())) == {}  # two that tie
    table = markdown([rows["good"], rows["poor"]], [16], {("i2t", 16): "good"})
    assert f"**{base.mean() + 0.1:.4f}**" in table and f"**{base.mean():.4f}**" not in table
    odd = Row("a_b & c", "50 %", "paper", rows["good"].cells)
    assert r"a\_b \& c & 50 \%" in latex([odd], [16], {})


def test_proposals_begin_with_the_defaults_and_repeat():
    first, *others = propose("kdph", 16, {"epochs": 3}, 4)
    assert first == {"epochs": 3} and len(others) == 3
    assert propose("kdph", 16, {"epochs": 3}, 4)[1:] == others
    assert len({layer["settings"]["epsilon"] for layer in others} | {40.0}) > 1


def test_unknown_methods_are_named():
    assert parse_methods("kdph, pq,kdph") == ("kdph", "pq")
    with pytest.raises(UsageError, match="--methods best: choose from kaph"):
        parse_methods("best")


def test_the_command_writes_resumes_and_adds(pack, tmp_path):
    out = tmp_path / "out"
    options = ["--data", str(pack), "--bits", "16", "--seeds", "1", "--set", "epochs=2", "--out", str(out)]

    def compare(methods, *more):
        command = [sys.executable, "-m", "kenthash", "compare", *options, "--methods", methods, *more]
        return subprocess.run(command, capture_output=True, text=True)

    assert compare("dsph").returncode == 0
    model = out / "runs" / "dsph-16-0" / "model" / "model.safetensors"
    before = model.stat().st_mtime_ns
    printed = compare("dsph,lsh,kdph").stdout
    assert model.stat().st_mtime_ns == before  # kept, not made again
    assert "| I2T | KDPH |" in printed and "| T2I | lsh |" in printed
    with (out / "table.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 6 and all(0 < float(row["map_mean"]) < 1 for row in rows)
    assert {path.name for path in out.iterdir()} >= {"table.md", "table.tex", "figure.png", "figure.svg"}
    refused = compare("dsph", "--set", "batch=64")
    assert refused.returncode == 2 and "made with other settings" in refused.stderr


def test_tuning_keeps_the_best_on_validation(pack, tmp_path):
    layer = {"epochs": 2, "batch": 64}
    chosen = tuned_layers(tmp_path, pack, ["dsph"], 16, layer, tries=2)["dsph"]
    record = read_json(tmp_path / "dsph-16.json")
    assert record["best"] == int(np.argmax(record["scores"])) and record["layer"] == chosen
    assert not list(tmp_path.glob("*/metrics.json"))  # the query set was never asked


def test_lsh_keeps_angles(pack):
    """Two vectors at angle θ differ in a share θ/π of random-hyperplane bits (Charikar 2002)."""
    features = FeaturePack.open(pack)
    split = make_split(len(features), seed=0)
    codes, _ = apply_control("lsh", features, split, bits=1024)
    vectors, _ = apply_control("cosine", features, split, bits=1024)
    angles = np.arccos(np.clip(vectors.text @ vectors.text.T, -1, 1)) / np.pi
    assert unpack(codes.text).shape[1] == 1024
    assert hamming(codes.text, codes.text) / 1024 == pytest.approx(angles, abs=0.08)
