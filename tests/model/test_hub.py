"""Models on a hub: `huggingface_hub` itself against a stand-in for the server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_hub import small_hub

from kenthash import Hasher
from kenthash.errors import UsageError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork
from kenthash.model.relevance import Relevance
from processes import PATIENCE

# In a process of its own: the library reads its settings when it is imported.
PUSH = """
import sys
from kenthash import Hasher
print(Hasher.from_pretrained(sys.argv[1]).push_to_hub("someone/scenes-16", private=True))
"""
PULL = """
import json, sys
import numpy as np
from kenthash import Hasher, KenthashError
try:
    hasher = Hasher.from_pretrained(*sys.argv[1:2], "cpu", None, *sys.argv[2:])
    print(json.dumps([hasher.encode_text_features(np.ones((1, 3))).tolist(), hasher.relevance is not None]))
except KenthashError as error:
    print(error)
"""


def run(script: str, cache: Path, address: str, *words: str, token: str = "secret") -> str:
    settings = {"HF_ENDPOINT": address, "HF_HOME": str(cache), "HF_TOKEN": token}
    words = (sys.executable, "-c", script, *words)
    completed = subprocess.run(words, env=os.environ | settings, capture_output=True, text=True, timeout=PATIENCE)
    return completed.stdout.strip() or completed.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder, head = tmp_path_factory.mktemp("model"), HeadConfig()
    HashNetwork(HasherConfig(16, image_dim=5, text_dim=3, image_head=head, text_head=head, encoder="")).save(folder)
    Relevance({16: {"words": (-4.0, 8.0, 0.0, 0.0)}}, "some photos", 500).write(folder)
    (folder / "notes.txt").write_text("not a part of the model")
    return folder


def test_a_model_that_was_pushed_is_pulled_elsewhere_with_the_same_codes(model: Path, tmp_path: Path) -> None:
    expected = json.dumps([Hasher.load(model).encode_text_features(np.ones((1, 3))).tolist(), True])
    with small_hub() as hub:
        pushed = run(PUSH, tmp_path / "here", hub.address, str(model))
        commit, files = hub.commit("someone/scenes-16", "main")
        assert pushed == f"{hub.address}/someone/scenes-16/commit/{commit}"
        assert hub.private == {"someone/scenes-16": True}
        assert set(files) - {".gitattributes"} == {file.name for file in model.iterdir()} - {"notes.txt"}
        assert files["model.safetensors"] == (model / "model.safetensors").read_bytes()
        for revision in ([], [commit]):
            assert (
                run(PULL, tmp_path / f"there{len(revision)}", hub.address, "someone/scenes-16", *revision) == expected
            )
        unknown = run(PULL, tmp_path / "there", hub.address, "someone/nothing")
        assert unknown.startswith("someone/nothing: the hub did not do this: ") and "\n" not in unknown
        refused = run(PUSH, tmp_path / "here", hub.address, str(model), token="wrong")
        assert "someone/scenes-16: the hub did not do this: " in refused and "401" in refused
    # What was fetched is found again without the hub.
    assert run(PULL, tmp_path / "there0", hub.address, "someone/scenes-16") == expected


def test_a_revision_is_of_a_repository(model: Path) -> None:
    with pytest.raises(UsageError, match="revision main: is for a repository owner/name on a hub"):
        Hasher.from_pretrained(model, revision="main")
    assert Hasher.from_pretrained("light", bits=64).bits == 64
