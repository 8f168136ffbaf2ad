"""The models that come with the package: whole, loaded by name, and chosen by what is at hand."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_wheels import offer_wheels
from typer.testing import CliRunner

from kenthash import Hasher, Index
from kenthash.cli import app
from kenthash.encoders import clip, open_encoder
from kenthash.encoders.light import WEIGHTS
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.files import content_digest
from kenthash.model.config import HasherConfig, HeadConfig, read_config
from kenthash.model.network import HashNetwork
from kenthash.model.pretrained import NAMES, best_pretrained, find_model, pretrained_folders
from kenthash.search.models import assign_model, model_for
from processes import PATIENCE


@pytest.mark.parametrize("name", NAMES)
def test_a_pretrained_model_is_whole_and_small(name: str) -> None:
    folder, weights = pretrained_folders()[name], clip.clip_weights() if name == "clip" else content_digest(*WEIGHTS)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 10e6
    config = read_config(folder / "config.json")
    assert config.encoder == name and config.encoder_weights == weights
    hasher = Hasher.load(name, "cpu")
    vectors = np.random.default_rng(0).standard_normal((20, config.image_dim)).astype(np.float32)
    # The graphs, and the weights that PyTorch loads, are of one model.
    network = HashNetwork.load(folder, "cpu")
    with torch.inference_mode():
        expected = network.image_head(torch.from_numpy(vectors)).numpy()
    np.testing.assert_allclose(hasher.image_outputs(vectors), expected, atol=1e-4)
    card = (folder / "README.md").read_text()
    for word in ("COCO", "CC BY 4.0", "R@10", "kenthash train"):
        assert word in card


def test_a_folder_is_taken_before_a_model_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "light").mkdir()  # of pictures, say
    assert find_model("light") == pretrained_folders()["light"]
    head = HeadConfig()
    HashNetwork(HasherConfig(16, 5, 3, head, head, "")).save(tmp_path / "light" / "model")
    assert find_model("light") == Path("light", "model")
    with pytest.raises(UsageError, match="nothing: neither a folder nor a pretrained model: these are clip, light"):
        Hasher.load("nothing")
    with pytest.raises(DataError, match=r"no config.json here"):
        Hasher.load(tmp_path)


def test_the_model_of_an_index_from_elsewhere_is_known_by_its_digest(tmp_path: Path) -> None:
    with Index.create(tmp_path / "a.kh", 256) as index:
        assign_model(index, pretrained_folders()["clip"])
        index.note("model_path", "/another/machine/kenthash/pretrained/clip")
        known = pretrained_folders().values()
        assert model_for(index, None, known) == pretrained_folders()["clip"]
        with pytest.raises(DataError, match="not there any more"):
            model_for(index, None)
        with pytest.raises(DataError, match="not there any more"):
            model_for(index, None, [pretrained_folders()["light"]])
        # The model that another version of the package had under the same name.
        index.note("model_path", str(pretrained_folders()["light"]))
        with pytest.raises(UsageError, match=r"is another model now .*: remove .*a\.kh and fill it again"):
            model_for(index, None)
        with pytest.raises(UsageError, match=r"not the model that .*\.kh was made with, .*: use that one"):
            model_for(index, pretrained_folders()["light"])


def test_the_best_model_is_the_one_that_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer_wheels(tmp_path / "wheels", monkeypatch)
    wheels = [path.rename(tmp_path / path.name) for path in (tmp_path / "wheels").iterdir()]
    monkeypatch.setitem(sys.modules, "pip", None)  # uv is faster
    assert best_pretrained() == "light"
    messages = capsys.readouterr().err
    assert "using the model `light` instead" in messages and "kenthash models get clip --file" in messages
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(KenthashError, match="cannot be downloaded"):
        best_pretrained()
    clip.get_clip(wheels)
    assert best_pretrained() == "clip"


def test_models_are_listed_with_what_they_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "torch", None)
    listed = CliRunner().invoke(app, ["models", "list", "--json"])
    first, second = json.loads(listed.stdout)
    assert (first["name"], first["bits"], first["encoder"]) == ("clip", 256, None)
    assert "fetched when first needed" in first["note"] and "pip install 'kenthash[train]'" in second["note"]
    printed = CliRunner().invoke(app, ["models", "list"]).stdout
    assert "MIT" in printed and "Apache-2.0" in printed and "README.md" in printed


def test_a_name_that_is_no_model_is_one_line() -> None:
    command = [sys.executable, "-m", "kenthash", "models", "get"]
    for words, reason in ((["snow"], "not a pretrained model"), (["light", "--file", "a"], "leave out --file")):
        completed = subprocess.run([*command, *words], env=os.environ, capture_output=True, text=True, timeout=PATIENCE)
        assert completed.returncode == 2 and completed.stderr.count("\n") == 1 and reason in completed.stderr


def test_the_demo_searches_a_folder_where_clip_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kenthash.demo import FOLDER_QUERIES, search_plain_folder

    for number in range(4):
        picture = np.full((40, 60, 3), 60 * number, np.uint8)
        Image.fromarray(picture).save(tmp_path / f"{number}.jpg")
    with monkeypatch.context() as changed:
        light = open_encoder("light").folder  # of this session, into the cache that the wheels are offered with
        offer_wheels(tmp_path / "wheels", changed)
        shutil.copytree(light, tmp_path / "cache" / "kenthash" / "encoders" / light.name)
        shutil.rmtree(tmp_path / "wheels")
        changed.setitem(sys.modules, "pip", None)  # uv is faster
        lines: list[str] = []
        search_plain_folder(tmp_path / "folder", sorted(tmp_path.glob("*.jpg")), lines.append)
    assert "using the model `light` instead" in capsys.readouterr().err
    assert "4 pictures, by the model light" in lines[0]
    for query, line in zip(FOLDER_QUERIES, lines[1:], strict=False):
        assert query in line and line.count(".jpg") == 3
    assert (tmp_path / "folder" / ".kenthash.kh").is_file()
