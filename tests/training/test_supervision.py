"""Training and evaluating where labels or captions are missing: for all items, or for some of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kenthash.data.pack import FeaturePack
from kenthash.data.splits import make_split
from kenthash.errors import DataError
from kenthash.training.evaluate import evaluate_run
from kenthash.training.loop import Training
from kenthash.training.recipe import make_recipe
from kenthash.training.sources import FeatureSource
from kenthash.training.train import train_run
from packs import remove_captions, write_pack

SPLIT = make_split(400, seed=0)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return write_pack(tmp_path / "pack")


def write_labels(pack: Path, labels: NDArray[np.uint8]) -> None:
    np.save(pack / "labels.npy", labels)
    meta = json.loads((pack / "meta.json").read_text())
    (pack / "meta.json").write_text(json.dumps(meta | {"classes": [f"class {c}" for c in range(labels.shape[1])]}))


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (np.zeros((400, 0), np.uint8), "its items have no labels"),
        (np.eye(400, dtype=np.uint8), "no two of the 180 training items share a label"),
        (np.ones((400, 1), np.uint8), "all 180 training items with labels have the same ones"),
    ],
    ids=["no classes", "each its own", "one for all"],
)
def test_captions_alone_train_and_what_needs_labels_is_left_out(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], labels: NDArray[np.uint8], reason: str
) -> None:
    write_labels(pack, labels)
    recipe = make_recipe({"data": str(pack), "method": "ucmfh", "bits": 32, "batch": 60, "epochs": 4})
    train_run(recipe, tmp_path / "run")
    printed = capsys.readouterr().err
    assert ("labels are not used" in printed) == bool(labels.size)
    evaluation = evaluate_run(tmp_path / "run", figures=not labels.size)
    metrics, text = evaluation.metrics, evaluation.text()
    assert not evaluation.evaluations and metrics["real_valued_map"] == {} and "i2i" not in metrics
    for direction in ("i2t", "t2i"):
        assert "map" not in metrics[direction] and "instance_ndcg" not in metrics[direction]
        assert metrics[direction]["instance_recall"]["10"] > 0.6  # of 40 items: 0.25 by chance
    line = f"mAP and other figures by shared labels are left out: {reason}"
    assert metrics["left_out"] == [line] and line in text and "mAP" not in text.replace(line, "")
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert metrics["epoch"] == max(history, key=lambda r: r["score"])["epoch"] and "i2t" not in history[0]
    if not labels.size:
        assert {path.name for path in (tmp_path / "run" / "figures").iterdir()} == {"own_pairs.png", "own_pairs.svg"}


def test_items_with_only_a_label_or_only_a_caption_are_used(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = np.load(pack / "labels.npy")
    unlabelled, uncaptioned = np.arange(0, 400, 4), np.arange(1, 400, 4)
    labels[unlabelled] = 0
    write_labels(pack, labels)
    remove_captions(pack, uncaptioned)
    source = FeatureSource(FeaturePack.open(pack), torch.device("cpu"))
    for method, used in (("kaph", labels.any(axis=1)), ("ucch", ~np.isin(np.arange(400), uncaptioned))):
        recipe = make_recipe({"data": str(pack), "method": method, "bits": 16, "batch": 60, "epochs": 2})
        training = Training(recipe, source, SPLIT.train, torch.device("cpu"))
        np.testing.assert_array_equal(training.rows, SPLIT.train[used[SPLIT.train]])
        train_run(recipe, tmp_path / method)
    numbers = [int(np.isin(SPLIT.train, items).sum()) for items in (unlabelled, uncaptioned)]
    assert re.findall(r"tiny: (\d+) of 180 .* have no (\w+): (.*)", capsys.readouterr().err) == [
        (str(numbers[0]), "label", "left out of training"),
        (str(numbers[1]), "caption", "learned from by their labels alone"),
        (str(numbers[0]), "label", "learned from by their captions alone"),
        (str(numbers[1]), "caption", "left out of training"),
    ]
    metrics = evaluate_run(tmp_path / "kaph", figures=False).metrics
    has_caption = ~np.isin(np.arange(400), uncaptioned)
    ranked = has_caption[SPLIT.database] & labels[SPLIT.database].any(axis=1)
    assert metrics["i2t"]["database"] == ranked.sum()
    assert metrics["i2t"]["instance_queries"] == has_caption[SPLIT.query].sum()
    assert len(metrics["left_out"]) == 3  # items without labels, items without captions, short queries


def test_an_item_without_a_caption_moves_only_the_head_of_pictures(pack: Path) -> None:
    """A row of zeros stands for its text, which must not be learned from: whatever it held, the step is the same."""
    remove_captions(pack, np.arange(1, 400, 4))
    source = FeatureSource(FeaturePack.open(pack), torch.device("cpu"))
    recipe = make_recipe({"data": str(pack), "bits": 16, "batch": 60, "epochs": 1, "head": {"dropout": 0.0}})

    class Changed(FeatureSource):
        def __init__(self) -> None:
            self.__dict__.update(source.__dict__)

        def text_vectors(self, rows: NDArray[np.int64], captions: NDArray[np.int64]) -> torch.Tensor:
            vectors = super().text_vectors(rows, captions)
            vectors[torch.from_numpy(self.captions[rows] == 0)] = 5.0
            return vectors

    states = []
    for each in (source, Changed()):
        training = Training(recipe, each, SPLIT.train, torch.device("cpu"))
        training.epoch(0, lambda *_: None)
        states.append(training.network.modules().state_dict())
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], rtol=0, atol=0, msg=name)


def test_too_little_to_learn_from_is_refused_before_anything_is_written(pack: Path, tmp_path: Path) -> None:
    def refused(method: str, message: str) -> None:
        with pytest.raises(DataError, match=f"^tiny: {message}") as error:
            train_run(make_recipe({"data": str(pack), "method": method, "bits": 16}), tmp_path / "run")
        assert "\n" not in str(error.value) and not (tmp_path / "run").exists()

    remove_captions(pack, SPLIT.train[1:])
    for method, needed in (("dsph", "labels and a caption"), ("ucch", "a caption")):
        refused(method, f"only 1 of the 180 training items has {needed}")
    remove_captions(pack, SPLIT.validation)
    refused("ucch", "none of the 20 validation items has a caption")
    remove_captions(pack, np.arange(400))
    refused("kaph", "none of the 180 training items has a caption")
