"""Every method learns: with its own defaults, ten points of mAP over random codes on held-out items."""

import numpy as np
import pytest
import torch

from kenthash.codes import pack
from kenthash.encoders.features import FeaturePack
from kenthash.evaluation import map_of
from kenthash.methods import METHODS
from kenthash.training.loop import Training
from kenthash.training.recipe import make_recipe
from kenthash.training.sources import FeatureSource, head_outputs
from packs import write_pack

TRAIN, HELD_OUT = np.arange(300), np.arange(300, 400)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> FeatureSource:
    pack_folder = write_pack(tmp_path_factory.mktemp("learning") / "pack")
    return FeatureSource(FeaturePack.open(pack_folder), torch.device("cpu"))


def score(image: np.ndarray, text: np.ndarray, labels: np.ndarray) -> float:
    return (map_of(image, text, labels, labels) + map_of(text, image, labels, labels)) / 2


@pytest.mark.parametrize("key", METHODS)
def test_learns(key: str, source: FeatureSource) -> None:
    labels = source.dataset.labels[HELD_OUT]
    rng = np.random.default_rng(0)
    image, text = (pack(rng.standard_normal((len(HELD_OUT), 32))) for _ in range(2))
    chance = score(image, text, labels)

    recipe = make_recipe({"method": key, "bits": 32, "batch": 60, "epochs": 40})
    training = Training(recipe, source, TRAIN, torch.device("cpu"))
    for epoch in range(recipe.epochs):
        training.epoch(epoch, lambda *_: None)
    outputs = head_outputs(training.network, source, HELD_OUT)
    reached = score(pack(outputs.image), pack(outputs.text), labels)
    assert reached > chance + 0.1, f"{reached:.3f} after {chance:.3f} of random codes"
