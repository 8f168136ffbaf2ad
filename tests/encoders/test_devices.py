"""Models and runs on a device that is not the CPU (`other_device`): what computes is moved there, and what comes back
is what the CPU gives."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_clip import make_pictures, write_clip

from kenthash import Hasher
from kenthash.cli import main
from kenthash.errors import UsageError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork
from kenthash.training.evaluate import evaluate_run
from kenthash.training.recipe import make_recipe
from kenthash.training.train import train_run

COMMANDS = """
import json, sys
import other_device
from kenthash.cli import app

convolutions = []
for words in json.loads(sys.argv[1]):
    other_device.ran.clear()
    app(words, standalone_mode=False)
    convolutions.append(other_device.ran["conv2d"])
print(json.dumps(convolutions), file=sys.stderr)
"""

LOADING = """
import sys
import numpy as np
import other_device
import torch
from kenthash.model.network import HashNetwork

network = HashNetwork.load(sys.argv[1], device="other")
vectors = torch.from_numpy(np.load(sys.argv[2])).to("other")
with torch.inference_mode():
    np.save(sys.argv[3], network.image_head(vectors).cpu().numpy())
assert other_device.ran["tanh"] == 1, other_device.ran
"""


def in_a_process(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, *map(str, words)]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr[-3000:]
    return completed


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs with an encoder that was trained, too."""
    folder = tmp_path_factory.mktemp("trained")
    write_clip(folder / "clip")
    files = make_pictures(folder / "pictures", 40)
    rows = [{"file_name": f.name, "text": f"text {i}", "labels": ["ab"[i % 2]]} for i, f in enumerate(files)]
    (folder / "pictures" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    encoder = {"spec": f"openclip:{folder / 'clip'}", "trainable": True}
    layer = {"data": str(folder / "pictures"), "method": "dsph", "bits": 16, "epochs": 2, "encoder": encoder}
    train_run(make_recipe(layer), folder / "run", quiet=True)
    return folder / "run"


def test_a_model_is_loaded_onto_the_device_that_is_asked_for(tmp_path: Path) -> None:
    head = HeadConfig()
    HashNetwork(HasherConfig(16, 24, 24, head, head, "")).save(tmp_path / "model")
    vectors = np.random.default_rng(0).standard_normal((5, 24)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    in_a_process(LOADING, tmp_path / "model", tmp_path / "vectors.npy", tmp_path / "outputs.npy")
    expected = Hasher.load(tmp_path / "model", device="cpu").image_outputs(vectors)
    np.testing.assert_allclose(np.load(tmp_path / "outputs.npy"), expected, atol=1e-5)


def test_commands_use_the_device_that_is_asked_for(run: Path) -> None:
    expected = evaluate_run(run, device="cpu").metrics
    commands = [
        ["evaluate", str(run), "--json", "--device", "other"],
        ["evaluate", str(run), "--json", "--device", "cpu"],
        ["train", "--resume", "--out", str(run), "--json", "--device", "other"],  # nothing is left but its evaluation
        ["analyze", str(run), "--json", "--device", "other"],
    ]
    completed = in_a_process(COMMANDS, json.dumps(commands))
    printed = completed.stdout.splitlines()
    assert json.loads(printed[0]) == json.loads(printed[1]) == json.loads(printed[2]) == expected
    there, cpu, *others = json.loads(completed.stderr.splitlines()[-1])
    assert there > 0 and cpu == 0 and all(others)


@pytest.mark.parametrize("device", ["nonsense", "meta", "cuda:77"])
def test_a_device_that_is_not_there_is_one_line(
    run: Path, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=f"device '{device}' cannot be used"):
        Hasher.load(run, device=device)
    index = str(tmp_path / "a.kh")
    commands: list[list[Any]] = [
        ["evaluate", run],
        ["analyze", run],
        ["index", "add", run.parent / "pictures", "--model", run, "--index", index],
        ["serve", "--index", index],
        ["train", "--data", run.parent / "pictures", "--out", tmp_path / "run"],
    ]
    for words in commands:
        monkeypatch.setattr(sys, "argv", ["kenthash", *map(str, words), "--device", device])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr().err
        assert end.value.code == 2 and printed.startswith(f"error: device '{device}'") and printed.count("\n") == 1
    assert not list(tmp_path.iterdir())
