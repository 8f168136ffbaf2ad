"""A model on data that it was not trained on: the same figures as a slow count of ranks."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from kenthash.cli import app
from kenthash.errors import DataError, UsageError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.hasher import Hasher
from kenthash.model.network import HashNetwork
from kenthash.model.transfer import evaluate_transfer
from packs import write_pack

ITEMS, DRAWN = 60, 40


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `model` of nested codes that has learnt nothing, and a `pack` that does not know its encoder."""
    folder = tmp_path_factory.mktemp("transfer")
    torch.manual_seed(0)
    head = HeadConfig()
    config = HasherConfig(32, 32, 24, head, head, "clip", encoder_weights="a" * 64, nested=[8])
    HashNetwork(config).save(folder / "model")
    write_pack(folder / "pack", ITEMS)
    return folder


def test_recall_is_that_of_counted_ranks(place: Path) -> None:
    words = ["models", "evaluate", str(place / "model"), "--data", str(place / "pack"), "--query", str(DRAWN)]
    result = CliRunner().invoke(app, [*words, "--seed", "3", "--json"])
    assert result.exit_code == 0, result.stderr
    scores = json.loads(result.stdout)
    assert scores["items"] == DRAWN and "does not say by which weights" in scores["vectors"]
    rows = np.random.default_rng(3).permutation(ITEMS)[:DRAWN]
    firsts = np.load(place / "pack" / "text_offsets.npy")[:-1]
    for bits in (8, 32):
        hasher = Hasher.load(place / "model", "cpu", bits)
        image = hasher.image_outputs(np.load(place / "pack" / "image.npy")[rows])
        text = hasher.text_outputs(np.load(place / "pack" / "text.npy")[firsts[rows]])
        for direction, queries, items in (("t2i", text, image), ("i2t", image, text)):
            distances = ((queries[:, None] >= 0) != (items[None] >= 0)).sum(2)
            weighted = (np.abs(queries[:, None]) * ((queries[:, None] >= 0) != (items[None] >= 0))).sum(2)
            recall = scores["recall"][str(bits)][direction]
            assert recall == {str(k): pytest.approx(100 * counted(distances, k)) for k in (1, 5, 10)}
            assert scores["real_valued_query"][str(bits)][direction] == pytest.approx(100 * counted(weighted, 10))
    assert "text → image" in CliRunner().invoke(app, words).stdout


def counted(distances: np.ndarray, k: int) -> float:
    """The mean probability that the item on the diagonal is among the first k, with ties in any order."""
    total = 0.0
    for row, own in zip(distances, np.diag(distances), strict=True):
        nearer, tied = int((row < own - 1e-9).sum()), int((np.abs(row - own) <= 1e-9).sum())
        total += min(max((k - nearer) / tied, 0.0), 1.0)
    return total / len(distances)


def test_vectors_of_another_encoder_and_items_without_texts_are_refused(place: Path, tmp_path: Path) -> None:
    pack = write_pack(tmp_path / "pack", ITEMS)
    meta = json.loads((pack / "meta.json").read_text())
    (pack / "meta.json").write_text(json.dumps(meta | {"encoder": "light", "encoder_weights": "b" * 64}))
    with pytest.raises(UsageError, match="its vectors are of light, the model takes those of clip"):
        evaluate_transfer(place / "model", pack)
    (pack / "meta.json").write_text(json.dumps(meta))
    np.save(pack / "text.npy", np.zeros((0, 24), np.float32))
    np.save(pack / "text_offsets.npy", np.zeros(ITEMS + 1, np.int64))
    with pytest.raises(DataError, match="none of its items has a text"):
        evaluate_transfer(place / "model", pack)
