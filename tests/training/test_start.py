"""Training that goes on from the heads of another model."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kenthash import Hasher
from kenthash.codes import pack
from kenthash.data.pack import FeaturePack
from kenthash.data.splits import make_split
from kenthash.errors import UsageError
from kenthash.losses.infonce import imitation
from kenthash.model.network import HashNetwork
from kenthash.model.pretrained import pretrained_folders
from kenthash.training.loop import Training
from kenthash.training.recipe import Recipe, make_recipe
from kenthash.training.sources import FeatureSource
from kenthash.training.start import default_start
from kenthash.training.train import train_run
from packs import write_pack


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a pack, and a run of 32 bits on it."""
    folder = tmp_path_factory.mktemp("start")
    write_pack(folder / "pack")
    train_run(recipe(folder, bits=32, nested=[16]), folder / "run", quiet=True)
    return folder


def recipe(folder: Path, **changes: object) -> Recipe:
    small = {"head": {"hidden": 64}, "epochs": 4, "batch": 60, "optimizer": {"lr": 0.01}}
    return make_recipe({"data": str(folder / "pack"), "method": "kcph", "bits": 16, **small, **changes})


def training(folder: Path, **changes: object) -> Training:
    source = FeatureSource(FeaturePack.open(folder / "pack"), torch.device("cpu"))
    return Training(recipe(folder, **changes), source, make_split(400, 1).train, torch.device("cpu"))


@pytest.mark.parametrize(("hidden", "kept"), [(32, 64), (64, 64), (200, 200)])
def test_it_begins_with_the_first_bits_of_the_model(folder: Path, hidden: int, kept: int) -> None:
    """Heads may be wider than the model's, but no narrower."""
    begun = training(folder, start=str(folder / "run"), head={"hidden": hidden})
    begun.modules.eval()
    assert begun.network.config.image_head.hidden == kept
    features, hasher = FeaturePack.open(folder / "pack"), Hasher.load(folder / "run", "cpu")
    with torch.inference_mode():
        image = begun.network.image_head(torch.from_numpy(features.image.astype(np.float32))).numpy()
    assert (pack(image) == hasher.encode_image_features(features.image)[:, :2]).mean() > 0.999


def test_a_run_that_started_from_a_model_is_finished_and_says_so(folder: Path) -> None:
    train_run(recipe(folder, start=str(folder / "run")), folder / "further", quiet=True)
    assert f"start: {folder / 'run'}" in (folder / "further" / "recipe.yaml").read_text()
    assert Hasher.load(folder / "further", "cpu").bits == 16


def test_it_keeps_what_the_model_knows_of_pairs(folder: Path) -> None:
    features = FeaturePack.open(folder / "pack")
    image, text = (torch.from_numpy(v.astype(np.float32)) for v in (features.image, features.text))
    rows = make_split(400, 1).query

    def outputs(heads: torch.nn.ModuleDict) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            return heads["image_head"].eval()(image[rows]), heads["text_head"].eval()(text[features.text_offsets[rows]])

    def difference(keep: float) -> float:
        begun = training(folder, start=str(folder / "run"), bits=32, settings={"keep": keep})
        for epoch in range(4):
            begun.epoch(epoch, lambda step, values: None)
        assert begun.start is not None
        return imitation(*outputs(begun.network.modules()), *outputs(begun.start), 0.07).item()

    assert difference(keep=10.0) < 0.8 * difference(keep=0.0)


def test_units_beyond_those_of_the_model_learn(folder: Path) -> None:
    begun = training(folder, start=str(folder / "run"), head={"hidden": 80})
    begun.epoch(0, lambda step, values: None)
    last = begun.network.image_head.state_dict()["layers.4.weight"]
    assert (last[:, 64:] != 0).all()


def write_known_pack(path: Path, known: float) -> FeaturePack:
    """A pack of the widths of `clip`, in which that model finds the own pairs of a share `known` of the items: the
    vectors of their pictures are moved until their outputs have the signs of those of their texts."""
    write_pack(path)
    heads = HashNetwork.load(pretrained_folders()["clip"], "cpu")
    first = np.load(path / "text_offsets.npy")
    generator = torch.Generator().manual_seed(0)
    text = torch.randn(int(first[-1]), 384, generator=generator)
    image = torch.randn(400, 512, generator=generator).requires_grad_()
    aims = heads.text_head(text[first[:-1]]).sign().detach()
    optimizer = torch.optim.Adam([image], lr=0.3)
    for _ in range(60):
        optimizer.zero_grad()
        torch.autograd.backward(-(heads.image_head(image) * aims).mean())
        optimizer.step()
    strange = torch.rand(400, generator=generator) >= known
    pictures = torch.where(strange[:, None], image[torch.randperm(400, generator=generator)], image)
    np.save(path / "image.npy", pictures.detach().numpy())
    np.save(path / "text.npy", text.numpy())
    return FeaturePack.open(path)


@pytest.mark.parametrize(("known", "start"), [(0.8, "clip"), (0.3, "")])
def test_the_default_method_goes_on_from_a_model_that_knows_such_pictures(
    tmp_path: Path, known: float, start: str
) -> None:
    features = write_known_pack(tmp_path / "pack", known)
    weights = json.loads((pretrained_folders()["clip"] / "config.json").read_text())["encoder_weights"]
    rows = make_split(400, 1).train

    def default(encoder: str, digest: str = "", **changes: object) -> tuple[str, str]:
        source = FeatureSource(replace(features, encoder=encoder, encoder_weights=digest), torch.device("cpu"))
        return default_start(recipe(tmp_path, **changes), source, rows)

    name, told = default("clip")
    assert name == default("clip", weights)[0] == start
    assert ("go on from those of clip" if start else "the heads begin with random weights: clip finds only") in told
    assert default("") == default("clip", "of others") == default("openclip:x") == ("", "")
    assert default("light") == ("", "")  # other widths
    assert default("clip", bits=512) == ("", "")  # its codes have 256
    assert default("clip", method="kaph") == ("", "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 64}, "its codes have 32 bits: choose at most as many, not 64"),
        ({"start": "clip"}, "start=clip: takes vectors of clip, 512-d and 384-d, not of an unknown encoder"),
        ({"start": "nowhere"}, "nowhere: neither a folder nor a pretrained model: these are clip, light"),
        ({"method": "dsph", "head": {}}, "only heads of kind mlp can be gone on from"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        training(folder, **{"start": str(folder / "run"), **changes})
