"""Training through a trainable encoder: its weights move, are saved, and are the ones that encode afterwards."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from small_clip import write_clip, write_pictures

from kenthash import Hasher
from kenthash.errors import DataError, UsageError
from kenthash.files import read_json
from kenthash.training.evaluate import evaluate_run
from kenthash.training.recipe import make_recipe
from kenthash.training.train import train_run
from processes import PATIENCE

WITHOUT_PYTORCH = """
import sys

sys.modules.update(dict.fromkeys(["torch", "torchvision", "open_clip", "transformers", "onnx", "safetensors"]))
from kenthash import Hasher

print(Hasher.load(sys.argv[1]).encode_texts(sys.argv[2]).tobytes().hex())
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("end-to-end")
    original = write_clip(folder / "clip").state_dict()
    recipe = make_recipe(
        {
            "data": str(write_pictures(folder / "pictures")),
            "method": "dsph",
            "bits": 16,
            "epochs": 12,
            "batch": 10,
            "encoder": {"spec": f"openclip:{folder / 'clip'}", "trainable": True, "lr": 1e-3},
            "optimizer": {"lr": 0.01},
        }
    )
    train_run(recipe, folder / "run", quiet=True)
    return folder, original


def test_the_trained_encoder_is_saved_and_used(run: tuple[Path, dict[str, Any]]) -> None:
    folder, original = run
    stored = load_file(folder / "run" / "model" / "model.safetensors")
    key = next(name for name in stored if name.endswith("visual.conv1.weight"))
    assert not np.allclose(stored[key], original["visual.conv1.weight"])  # it learned
    metrics = evaluate_run(folder / "run").metrics
    assert metrics["t2i"]["map"] > 0.7  # a third of the items is relevant
    # The model answers by its own weights: the file it started from is no longer needed.
    (folder / "clip" / "open_clip_model.safetensors").unlink()
    hasher = Hasher.load(folder / "run")
    codes = hasher.encode_pictures([folder / "pictures" / f"{i}.png" for i in range(3)])
    assert codes.shape == (3, 2) and len({bytes(code) for code in codes}) > 1
    assert hasher.encode_texts([]).shape == (0, 2)
    # Its graphs came with it, so that nothing which trains is needed either.
    words = [sys.executable, "-c", WITHOUT_PYTORCH, str(folder / "run"), "something red"]
    encoded = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert encoded.stdout.strip() == hasher.encode_texts("something red").tobytes().hex(), encoded.stderr


def test_heads_can_learn_alone_first(tmp_path: Path) -> None:
    """Until the encoder joins, training is that of the frozen encoder to the last digit; then it is not."""
    clip = tmp_path / "clip"
    original = write_clip(clip).state_dict()
    layer = {
        "data": str(write_pictures(tmp_path / "pictures", 60)),
        "method": "dsph",
        "bits": 16,
        "epochs": 3,
        "batch": 10,
    }
    encoder = {"spec": f"openclip:{clip}", "lr": 1e-3}
    learning = {"trainable": True, "frozen_epochs": 2}
    for name, more in {"frozen": {}, "learning": learning}.items():
        train_run(make_recipe(layer, {"encoder": {**encoder, **more}}), tmp_path / name, quiet=True)
    frozen, learned = (read_json(tmp_path / name / "history.json") for name in ("frozen", "learning"))
    losses = [[epoch["loss"] for epoch in history] for history in (frozen, learned)]
    assert losses[0][:2] == losses[1][:2] and losses[0][2] != losses[1][2]
    stored = load_file(tmp_path / "learning" / "checkpoint" / "checkpoint.safetensors")
    key = next(name for name in stored if name.startswith("module.") and name.endswith("visual.conv1.weight"))
    assert not np.allclose(stored[key], original["visual.conv1.weight"])
    with pytest.raises(UsageError, match="none of 3 epochs is left"):
        never = make_recipe(layer, {"encoder": {**encoder, "trainable": True, "frozen_epochs": 3}})
        train_run(never, tmp_path / "never", quiet=True)


def test_a_bad_picture_is_named(tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures")
    for file in pictures.glob("*.png"):
        file.write_bytes(b"not a picture")
    clip = tmp_path / "clip"
    write_clip(clip)
    encoder = {"spec": f"openclip:{clip}", "trainable": True}
    recipe = make_recipe(
        {"data": str(pictures), "method": "dsph", "bits": 16, "epochs": 1, "batch": 10, "encoder": encoder}
    )
    with pytest.raises(DataError, match=r"\.png.*data check"):
        train_run(recipe, tmp_path / "run", quiet=True)
