"""What is taken from the training items for a study is taken from nobody else."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kenthash.data.pack import FeaturePack
from kenthash.data.splits import make_split
from kenthash.errors import UsageError
from kenthash.training.lacking import items_of, split_without
from kenthash.training.loop import Training
from kenthash.training.recipe import Lacking, make_recipe
from kenthash.training.run_folder import Run
from kenthash.training.sources import FeatureSource
from kenthash.training.train import train_run
from packs import write_pack

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> FeatureSource:
    return FeatureSource(FeaturePack.open(write_pack(tmp_path_factory.mktemp("lacking") / "pack")), CPU)


def training(source: FeatureSource, method: str = "kcph", **lacking: float) -> Training:
    rows = make_split(len(source.dataset), 0).train
    return Training(make_recipe({"method": method, "bits": 16, "lacking": lacking}), source, rows, CPU)


def test_labels_are_dropped_one_by_one(source: FeatureSource) -> None:
    before = source.dataset.labels.copy()
    train = make_split(len(before), 0).train
    labels = training(source, labels=0.6).labels.numpy()
    assert np.array_equal(source.dataset.labels, before)
    others = np.setdiff1d(np.arange(len(before)), train)
    assert np.array_equal(labels[others], before[others])
    assert (labels <= before).all()
    assert labels[train].sum() / before[train].sum() == pytest.approx(0.4, abs=0.08)
    rows = training(source, "dsph", labels=0.6).rows
    assert set(rows) == {row for row in train if labels[row].any()}  # a method that needs labels leaves the rest out


def test_items_without_captions_are_left_out_where_captions_are_needed(source: FeatureSource) -> None:
    train = make_split(len(source.dataset), 0).train
    whole, fewer = training(source, captions=0.5), training(source, "dsph", captions=0.5)
    assert np.array_equal(whole.rows, train)
    assert len(fewer.rows) == len(train) - round(0.5 * len(train))
    assert set(fewer.rows) == {row for row in train if whole.captions[row]}
    assert np.array_equal(np.delete(whole.captions, train), np.delete(source.captions, train))
    assert not np.shares_memory(whole.captions, source.captions)


def test_items_without_pictures_and_of_unseen_classes_leave_the_split(source: FeatureSource) -> None:
    split = make_split(len(source.dataset), 0)
    half = split_without(split, source.dataset, Lacking(pictures=0.5))
    assert set(half.train) < set(split.train) and len(half.train) == len(split.train) - round(len(split.train) / 2)
    assert replace(half, train=split.train).digest() == split.digest()
    unseen = split_without(split, source.dataset, Lacking(classes=["class 3", "class 7"]))
    has = np.asarray(source.dataset.labels[:, [3, 7]].any(axis=1))
    assert np.array_equal(items_of(source.dataset, ["class 3", "class 7"]), has)
    assert set(unseen.train) == {row for row in split.train if not has[row]}
    assert set(unseen.validation) == {row for row in split.validation if not has[row]}
    assert has[unseen.query].any() and np.array_equal(unseen.database, split.database)


def test_a_class_that_there_is_not(source: FeatureSource) -> None:
    with pytest.raises(UsageError, match=r"lacking\.classes: tiny has no class 'unicorn'"):
        split_without(make_split(len(source.dataset), 0), source.dataset, Lacking(classes=["unicorn"]))


def test_a_run_remembers_what_it_lacked(tmp_path: Path) -> None:
    layer = {"data": str(write_pack(tmp_path / "pack")), "method": "dsph", "bits": 16, "epochs": 1}
    train_run(make_recipe(layer, {"lacking": {"classes": ["class 3"]}}), tmp_path / "run", quiet=True)
    run = Run.open(tmp_path / "run", "cpu")
    labels = run.source().dataset.labels
    assert not labels[run.split.train, 3].any() and labels[run.split.query, 3].any()
