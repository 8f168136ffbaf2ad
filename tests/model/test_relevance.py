"""The relevance of hits: its formula against a slow one, its error on items that calibrated nothing, and its file."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from kenthash.api import train
from kenthash.cli import app
from kenthash.data.splits import Split
from kenthash.errors import DataError, UsageError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.hasher import Hasher
from kenthash.model.network import HashNetwork
from kenthash.model.relevance import FILE, Relevance
from kenthash.model.transfer import evaluate_transfer
from kenthash.search.index import Index

CLASSES = ["dog", "cat", "kite", "fire hydrant", "boat"]
ITEMS, DIM, BITS = 900, 16, 32


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `model` that maps pictures and texts alike, and a `pack` whose vectors say, with noise, which classes they
    show."""
    folder = tmp_path_factory.mktemp("relevance")
    torch.manual_seed(0)
    config = HasherConfig(BITS, DIM, DIM, HeadConfig(), HeadConfig(), "", nested=[8])
    network = HashNetwork(config)
    network.text_head.load_state_dict(network.image_head.state_dict())
    network.save(folder / "model")
    rng = np.random.default_rng(0)
    labels = (rng.random((ITEMS, len(CLASSES))) < 0.3).astype(np.uint8)
    shown = labels @ rng.standard_normal((len(CLASSES), DIM))
    pack = folder / "pack"
    pack.mkdir()
    np.save(pack / "labels.npy", labels)
    for part in ("image", "text"):
        np.save(pack / f"{part}.npy", (shown + 0.7 * rng.standard_normal(shown.shape)).astype(np.float32))
    np.save(pack / "text_offsets.npy", np.arange(ITEMS + 1))
    texts = [" and ".join(f"a {CLASSES[c]}" for c in np.flatnonzero(row)) or "nothing" for row in labels]
    (pack / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    (pack / "ids.txt").write_text("".join(f"{i}\n" for i in range(ITEMS)))
    (pack / "meta.json").write_text(json.dumps({"name": "pictures", "classes": CLASSES, "encoders": {}}))
    return folder


def test_relevance_is_true_of_items_that_calibrated_nothing(place: Path) -> None:
    part = ["--data", str(place / "pack"), "--query", "400"]
    result = CliRunner().invoke(app, ["models", "calibrate", str(place / "model"), *part, "--seed", "1", "--json"])
    assert result.exit_code == 0, result.stderr
    fitted = json.loads(result.stdout)["coefficients"]
    assert set(fitted) == {"8", str(BITS)} and set(fitted["8"]) == {"words", "picture"}
    assert all(kind[1] > 1 for kind in fitted[str(BITS)].values())  # nearer is more often right
    rows = set(np.random.default_rng(1).permutation(ITEMS)[:400]) & set(
        np.random.default_rng(2).permutation(ITEMS)[:400]
    )
    assert len(rows) < 200  # half of those evaluated are new
    words = ["models", "evaluate", str(place / "model"), *part, "--seed", "2"]
    errors = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["calibration_error"]
    assert all(error < 0.05 for kinds in errors.values() for error in kinds.values()), errors
    assert "calibration error of the relevance, asked in words: 8 bits 0.0" in CliRunner().invoke(app, words).stdout


def test_relevance_of_hits_is_the_formula(place: Path, tmp_path: Path) -> None:
    hasher = Hasher.load(place / "model", "cpu")
    relevance = Relevance({BITS: {"words": (-3.0, 6.0, 1.5, -0.5)}}, "pictures", 400)
    vectors = np.load(place / "pack" / "image.npy")[:300]
    query = hasher.text_outputs(np.load(place / "pack" / "text.npy")[:1])
    with Index.create(tmp_path / "some.kh", bits=BITS) as index:
        index.add([str(i) for i in range(300)], hasher.encode_image_features(vectors))
        (hits,) = index.search(query, k=20)
    got = relevance.of_hits(query, hits.distances, hits.full_distance, 300, "words")
    assert got is not None
    for name, value in zip(hits.ids, got, strict=True):
        signs = np.where(hasher.image_outputs(vectors[int(name)][None])[0] >= 0, 1.0, -1.0)
        q = query[0].astype(float)
        cosine = q @ signs / np.linalg.norm(q) / np.linalg.norm(signs)
        sureness = np.abs(q).mean() / np.sqrt((q**2).mean())
        expected = 1 / (1 + np.exp(-(-3 + 6 * cosine + 1.5 * sureness - 0.5 * np.log10(300))))
        assert value == pytest.approx(expected, abs=0.01)  # the weights of bits are rounded
    assert (np.diff(got) <= 0).all()
    assert relevance.of_hits(query, hits.distances, hits.full_distance, 300, "picture") is None
    assert relevance.of_hits(query[:, :8], hits.distances, hits.full_distance, 300, "words") is None


def test_a_damaged_file_and_too_few_items_are_named(place: Path, tmp_path: Path) -> None:
    for text in (
        '{"format": 1}',
        "[]",
        '{"format": 1, "data": "", "items": 1, "coefficients": {"8": {"words": [1, 2]}}}',
    ):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(DataError, match="not the relevance of a model"):
            Relevance.read(tmp_path)
    words = ["models", "calibrate", str(place / "model"), "--data", str(place / "pack"), "--query", "150"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code and isinstance(result.exception, DataError)
    assert "at least 200 that were not trained on are needed" in str(result.exception)


def test_training_calibrates_on_what_it_does_not_learn_from(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"method": "dsph", "epochs": 2, "batch": 64}
    train(place / "pack", tmp_path / "run", bits=16, overrides=few)
    relevance = Hasher.load(tmp_path / "run", "cpu").relevance
    split = Split.load(tmp_path / "run" / "split.npz")
    assert relevance is not None and set(relevance.coefficients) == {16}
    assert relevance.items == len(split.database) - len(split.train)
    assert "per cent" not in capsys.readouterr().err
    # Too few items: one line, and a run all the same.
    sizes = {"query": 100, "train": 750, "validation": 50}
    assert train(place / "pack", tmp_path / "most", bits=16, overrides={**few, "split": sizes}) is not None
    assert not (tmp_path / "most" / "model" / FILE).exists()
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "per cent" in line)
    assert "100 of its items are too few to measure how often a hit is right: at least 200 " in line


def test_a_model_that_trained_its_encoder_is_not_measured_by_other_vectors(place: Path, tmp_path: Path) -> None:
    head = HeadConfig()
    HashNetwork(HasherConfig(16, DIM, DIM, head, head, "")).save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "encoder_trained": True}))
    with pytest.raises(UsageError, match="its encoder was trained with it"):
        evaluate_transfer(tmp_path / "model", place / "pack")
