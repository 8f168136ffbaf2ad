"""A model with its encoder: what may be given to it, and which weights its encoder may have."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_clip import make_dataset, make_pictures, write_clip

from kenthash import Hasher
from kenthash.cli import main
from kenthash.encoders import load_encoder
from kenthash.encoders.pipeline import encode_dataset
from kenthash.errors import DataError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork
from kenthash.training.evaluate import evaluate_run
from kenthash.training.recipe import make_recipe
from kenthash.training.train import train_run


@pytest.fixture(scope="module")
def hasher(tmp_path_factory: pytest.TempPathFactory) -> Hasher:
    """Untrained, of 16 bits, over a small CLIP."""
    folder = tmp_path_factory.mktemp("encoder") / "clip"
    write_clip(folder)
    head = HeadConfig()
    HashNetwork(HasherConfig(16, 24, 24, head, head, f"openclip:{folder}")).save(folder / "model")
    return Hasher.load(folder / "model")


def test_one_text_or_picture_is_one_code(hasher: Hasher, tmp_path: Path) -> None:
    listed = hasher.encode_texts(["two dogs"])
    assert listed.shape == (1, 2)
    assert np.array_equal(hasher.encode_texts("two dogs"), listed)
    (file,) = make_pictures(tmp_path, 1)
    with Image.open(file) as picture:
        expected = hasher.encode_pictures([file])
        for given in (file, str(file), file.read_bytes(), picture):
            assert np.array_equal(hasher.encode_pictures(given), expected), type(given)


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a pack, by an encoder whose file was replaced since: folders `clip`, `pack` and `run`."""
    folder = tmp_path_factory.mktemp("replaced")
    write_clip(folder / "clip")
    encoder = load_encoder(f"openclip:{folder / 'clip'}")
    encode_dataset(make_dataset(folder / "pictures", 60), encoder, folder / "pack")
    train_run(make_recipe({"data": str(folder / "pack"), "bits": 16, "epochs": 1}), folder / "run", quiet=True)
    assert Hasher.load(folder / "run").encode_texts("two dogs").shape == (1, 2)
    write_clip(folder / "clip", seed=1)
    return folder


def test_a_model_refuses_other_weights_of_its_encoder(
    replaced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # in which no graphs of the old weights are left
    with pytest.raises(DataError, match="other weights now than those that the model was trained with") as error:
        Hasher.load(replaced / "run").encode_texts("two dogs")
    assert "\n" not in str(error.value) and str(replaced / "clip") in str(error.value)
    index = tmp_path / "a.kh"
    words = ["index", "add", str(replaced / "pictures"), "--model", str(replaced / "run"), "--index", str(index)]
    monkeypatch.setattr("sys.argv", ["kenthash", *words])
    with pytest.raises(SystemExit):
        main()
    assert "other weights now" in capsys.readouterr().err and not index.exists()


def test_vectors_of_other_weights_are_not_evaluated(replaced: Path, tmp_path: Path) -> None:
    assert evaluate_run(replaced / "run", figures=False).metrics["bits"] == 16  # of the pack that it was trained on
    encoder = load_encoder(f"openclip:{replaced / 'clip'}")
    encode_dataset(make_dataset(tmp_path / "pictures", 60), encoder, tmp_path / "pack")
    with pytest.raises(DataError, match=r"pack: its vectors are by other weights of the encoder than the model of"):
        evaluate_run(replaced / "run", tmp_path / "pack")


def test_a_model_from_before_digests_is_read_and_left_as_it_is(
    replaced: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = replaced / "run" / "model"
    config = json.loads((model / "config.json").read_text())
    assert config.pop("encoder_weights") and config.pop("graphs")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    with caplog.at_level(logging.INFO):
        assert Hasher.load(tmp_path).encode_texts("two dogs").shape == (1, 2)
    assert "does not say which weights" in caplog.text
    assert json.loads((tmp_path / "config.json").read_text()) == config
