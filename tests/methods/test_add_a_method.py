"""The example of docs/add-a-method.md runs as it stands there, and learns."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from kenthash.codes import pack
from kenthash.data.pack import FeaturePack
from kenthash.evaluation import map_of
from kenthash.methods import METHODS
from kenthash.training.loop import Training
from kenthash.training.recipe import make_recipe
from kenthash.training.sources import FeatureSource, head_outputs
from packs import write_pack

ROOT = Path(__file__).parents[2]


def test_the_documented_method_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "add-a-method.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    module = tmp_path / "plain_method.py"
    module.write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METHODS, "plain", importlib.import_module("plain_method").Plain)
    source = FeatureSource(FeaturePack.open(write_pack(tmp_path / "pack")), torch.device("cpu"))
    rows = np.arange(300)
    recipe = make_recipe({"method": "plain", "bits": 16, "batch": 50, "optimizer": {"lr": 0.01}})
    training = Training(recipe, source, rows, torch.device("cpu"))

    def score() -> float:
        held_out = np.arange(300, 400)
        outputs = head_outputs(training.network, source, held_out)
        labels = source.dataset.labels[held_out]
        return map_of(pack(outputs.image), pack(outputs.text), labels, labels)

    before = score()
    for epoch in range(training.recipe.epochs):
        training.epoch(epoch, lambda *_: None)
    assert score() > before + 0.1, before
