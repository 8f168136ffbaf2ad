"""Nested codes: one model whose first bits are codes by themselves."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from kenthash import Hasher
from kenthash.data.pack import FeaturePack
from kenthash.data.splits import make_split
from kenthash.errors import DataError, UsageError
from kenthash.methods import Batch
from kenthash.training.epoch_scores import CHOSEN
from kenthash.training.evaluate import evaluate_run
from kenthash.training.loop import Training
from kenthash.training.recipe import Recipe, make_recipe
from kenthash.training.sources import FeatureSource
from kenthash.training.train import train_run
from packs import write_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pack(tmp_path_factory.mktemp("nested") / "pack")


def recipe(pack: Path, **changes: object) -> Recipe:
    small = {"head": {"hidden": 64}, "epochs": 6, "batch": 60, "optimizer": {"lr": 0.01}}
    return make_recipe({"data": str(pack), "method": "kcph", "bits": 32, "nested": [16], **small, **changes})


def test_the_loss_is_the_mean_over_all_lengths(pack: Path) -> None:
    source = FeatureSource(FeaturePack.open(pack), torch.device("cpu"))
    training = Training(recipe(pack, nested=[8, 16]), source, make_split(400, 0).train, torch.device("cpu"))
    torch.manual_seed(0)
    x, t = torch.rand(2, 9, 32) * 2 - 1
    labels = torch.from_numpy(source.dataset.labels[:9]).float()
    other_arguments = (torch.randn(9, 4), torch.randn(9, 4), torch.arange(9), torch.ones(9, dtype=torch.bool))
    terms = training.weighted_terms(Batch(x, t, labels, *other_arguments))
    for name, value in terms.items():
        each = [
            method.weights()[name] * method.terms(Batch(x[:, :bits], t[:, :bits], labels, *other_arguments))[name]
            for bits, method in training.methods.items()
        ]
        torch.testing.assert_close(value, torch.stack(each).mean())
    assert list(training.methods) == [32, 8, 16]
    proxies = {name for name, p in training.modules.named_parameters() if "proxies" in name}
    assert {name.rpartition("proxies")[0] for name in proxies} == {"method.", "nested.8.", "nested.16."}


def test_each_length_is_scored_after_an_epoch_and_in_the_evaluation(pack: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(recipe(pack), run, quiet=True)
    history = json.loads((run / "history.json").read_text())
    for epoch in history:
        figures = [scores[name] for scores in (epoch, epoch["nested"]["16"]) for name in CHOSEN["both"]]
        assert epoch["score"] == pytest.approx(np.mean(figures))
    whole = evaluate_run(run, figures=False)
    best = max(history, key=lambda epoch: epoch["score"])["epoch"]
    assert (whole.metrics["chosen_by"], whole.metrics["epoch"]) == ("both", best)
    first = evaluate_run(run, figures=False, bits=16)
    assert first.metrics["bits"] == 16 and "nested" not in first.metrics
    assert json.loads((run / "bits-16" / "metrics.json").read_text()) == first.metrics
    assert json.loads((run / "metrics.json").read_text()) == whole.metrics
    for direction, scores in whole.metrics["nested"]["16"].items():
        assert scores == {name: first.metrics[direction][name] for name in scores}
        assert scores["map"] != whole.metrics[direction]["map"]
    table = whole.text().partition("first bits")[2].splitlines()[2:4]
    values = [float(value) for line in table for value in line.split()]
    maps = [scores["map"] for scores in (first.metrics["i2t"], first.metrics["t2i"])]
    assert (values[0], values[5]) == (16, 32) and values[1:3] == pytest.approx(maps, abs=5e-5)
    with pytest.raises(UsageError, match="--bits 24: the model has codes of 16 and 32 bits"):
        evaluate_run(run, bits=24)


def test_a_model_can_be_loaded_with_fewer_bits(pack: Path, tmp_path: Path) -> None:
    train_run(recipe(pack), tmp_path / "run", quiet=True)
    whole, first = Hasher.load(tmp_path / "run"), Hasher.load(tmp_path / "run", bits=16)
    vectors = np.load(pack / "image.npy")[:20]
    assert (whole.bits, first.bits) == (32, 16)
    np.testing.assert_array_equal(first.encode_image_features(vectors), whole.encode_image_features(vectors)[:, :2])
    with pytest.raises(UsageError, match="24 bits: the model has codes of 16 and 32 bits"):
        Hasher.load(tmp_path / "run", bits=24)
    path = tmp_path / "run" / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"nested": [64]}))
    with pytest.raises(DataError, match=r"nested is \[64\]"):
        Hasher.load(tmp_path / "run")
