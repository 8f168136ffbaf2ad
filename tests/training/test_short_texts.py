"""Short texts: which are made of a data set, what they ask for in a batch, what a run learns and reports of them."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kenthash.data.dataset import Dataset
from kenthash.data.pack import FeaturePack
from kenthash.data.pack import write_pack as write_feature_pack
from kenthash.data.short_texts import TRAINED, UNSEEN, in_prompt, phrases
from kenthash.data.splits import make_split
from kenthash.evaluation.short_queries import TEMPLATES, class_texts
from kenthash.files import alone, cache_folder
from kenthash.training import sources
from kenthash.training.evaluate import evaluate_run
from kenthash.training.loop import Training
from kenthash.training.recipe import make_recipe
from kenthash.training.short_texts import ShortTexts
from kenthash.training.sources import FeatureSource, text_features
from kenthash.training.train import train_run

ANIMALS = ("dog", "cat", "horse", "owl", "elephant", "zebra")
COLOURS = ("red", "green", "blue", "grey")  # no labels: known from captions alone
ITEMS = 360
ENCODERS = cache_folder() / "encoders"  # as they are before a test gives another cache


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of an animal before a wall of some colour, with captions by the light encoder's text tower."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("short")
    animals, colours = rng.integers(len(ANIMALS), size=ITEMS), rng.integers(len(COLOURS), size=ITEMS)
    texts = [[f"The {ANIMALS[a]} is at a {COLOURS[c]} wall."] for a, c in zip(animals, colours, strict=True)]
    directions = rng.standard_normal((len(ANIMALS) + len(COLOURS), 32))
    image = directions[animals] + directions[len(ANIMALS) + colours] + 0.3 * rng.standard_normal((ITEMS, 32))
    labels = np.eye(len(ANIMALS), dtype=np.uint8)[animals]
    dataset = Dataset("animals", [f"item{i}" for i in range(ITEMS)], labels, list(ANIMALS), texts=texts)
    text = text_features([own[0] for own in texts], "light")
    meta = {"encoder": "light", "encoders": {}}
    vectors = ([image.astype(np.float16)], [text.astype(np.float16)])
    write_feature_pack(folder / "pack", folder / "work", dataset, *vectors, meta)
    return folder / "pack"


def source_of(pack: Path) -> FeatureSource:
    return FeatureSource(FeaturePack.open(pack), torch.device("cpu"))


def test_vectors_of_texts_are_made_by_one_process_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The runs of a comparison ask for the same texts at the same time: the second takes what the first has made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    encoders = cache_folder() / "encoders"
    encoders.parent.mkdir(parents=True)
    encoders.symlink_to(ENCODERS)
    texts = ["a red hat"]
    own = text_features(texts, "light")
    (path,) = (tmp_path / "kenthash" / "texts").glob("*.npy")
    path.unlink()
    with ThreadPoolExecutor(1) as pool:
        with alone(path.parent):
            second = pool.submit(text_features, texts, "light")
            while "another process is writing there" not in caplog.text:
                assert not second.done()
                time.sleep(0.01)
            np.save(path, (own + 1).astype(np.float16))
        np.testing.assert_allclose(second.result(), own + 1, atol=1e-3)


def test_phrases_end_at_function_words_and_punctuation() -> None:
    caption = "Two large brown dogs, on the couch's edge; a dog's-eye view"
    assert phrases(caption) == {
        *("two", "large", "brown", "dogs", "two large", "large brown", "brown dogs", "two large brown"),
        *("large brown dogs", "couch's", "edge", "couch's edge", "dog's-eye", "view", "dog's-eye view"),
    }
    assert phrases("") == phrases("on the a !") == set()
    assert phrases("Über München") == {
        "über",
        "münchen",
        "über münchen",
    }


def test_a_batch_is_asked_by_labels_and_by_phrases_where_they_are_known(pack: Path) -> None:
    source, rows = source_of(pack), make_split(ITEMS, 0).train
    labels = source.dataset.labels.copy()
    labels[rows[:40]] = 0  # their labels are not known
    short = ShortTexts(source.dataset, labels, source.captions, rows)
    names = {"wall": (), **dict.fromkeys(ANIMALS, ())}
    assert not names.keys() & {text for text in short.texts if text.startswith("wall")}  # of all items: asks nothing
    assert {in_prompt(template, "owl") for template in TRAINED} <= set(short.texts)
    assert not {in_prompt(template, "owl") for template in UNSEEN} & set(short.texts)
    assert short.texts.count("owl") == 1 and {"red", "red wall"} <= set(short.texts)
    items = np.random.default_rng(1).permutation(len(rows))[:50]
    captions = [source.dataset.captions()[row][0].lower() for row in rows[items]]
    drawn: set[str] = set()
    for seed in range(20):
        numbers, relevant, counted = short.draw(items, np.random.default_rng(seed))
        assert len(set(numbers)) == len(numbers) == len(relevant)
        for number, is_relevant, known in zip(numbers, relevant, counted, strict=True):
            text = short.texts[number]
            animal = next((name for name in ANIMALS if name in text), None)
            if animal is not None:
                own = labels[rows[items]]
                np.testing.assert_array_equal(known, own.any(axis=1))
                np.testing.assert_array_equal(is_relevant, own[:, ANIMALS.index(animal)] > 0)
            else:
                phrase = next(f"{c} wall" if f"{c} wall" in text else c for c in COLOURS if c in text)
                assert known.all()
                np.testing.assert_array_equal(is_relevant, [phrase in caption for caption in captions])
            assert is_relevant.any() and not (is_relevant | ~known).all()
            drawn.add(text)
    assert len(drawn) > 40  # of the templates of all of them
    without = ShortTexts(source.dataset, labels, np.zeros_like(source.captions), rows)
    assert without.texts and all(any(name in text for name in ANIMALS) for text in without.texts)


def test_a_text_has_the_vector_that_it_has_in_the_pack(pack: Path) -> None:
    source, rows = source_of(pack), np.arange(5)
    texts = [source.dataset.captions()[row][0] for row in rows]
    torch.testing.assert_close(source.written(texts), source.text_vectors(rows, np.zeros_like(rows)), rtol=0, atol=0)


def recipe(pack: Path, **settings: float) -> dict[str, object]:
    small = {"head": {"hidden": 128}, "epochs": 15, "batch": 54, "optimizer": {"lr": 0.01}}
    return {"data": str(pack), "method": "kcph", "bits": 32, "settings": settings, **small}


def test_what_is_learned_from_short_texts_and_what_evaluate_says(pack: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(make_recipe(recipe(pack, short=1.0)), run, quiet=True)
    evaluation = evaluate_run(run, figures=False)
    short = evaluation.metrics["short_queries"]
    assert list(short["templates"]) == [in_prompt(template, "NAME") for template in TEMPLATES]
    assert short["per_class"].keys() == set(ANIMALS) and not short["left_out"]
    assert short["precision"] == pytest.approx(np.mean(list(short["per_class"].values())))
    assert short["precision"] > 0.9  # 0.17 by chance
    trained = [scores["trained_on"] for scores in short["templates"].values()]
    assert trained == [True] * 3 + [False] * 3
    assert "show me a NAME" in evaluation.text() and "weakest:" in evaluation.text()
    history = json.loads((run / "history.json").read_text())
    assert history[-1]["short"] < 0.5 * history[0]["short"]


def test_an_unknown_encoder_leaves_them_out_and_says_so(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = without_encoder(pack, tmp_path)
    train_run(make_recipe(recipe(other), {"epochs": 1}), tmp_path / "run")
    messages = capsys.readouterr().err
    assert "animals: short texts are not learned from: the pack does not say which encoder" in messages
    assert "name it as `encoder` in its meta.json, or give that of its texts by --set encoder.spec=NAME" in messages
    metrics = evaluate_run(tmp_path / "run", figures=False).metrics
    assert "short_queries" not in metrics
    assert any(line.startswith("short queries are left out: the pack does not say") for line in metrics["left_out"])


def without_encoder(pack: Path, folder: Path) -> Path:
    other = shutil.copytree(pack, folder / "pack")
    meta = json.loads((pack / "meta.json").read_text())
    (other / "meta.json").write_text(json.dumps(meta | {"encoder": ""}))
    return other


def test_the_recipe_can_name_the_encoder_of_the_texts(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a pack that does not; it is believed only if it gives the vectors that the pack has."""
    other, named = without_encoder(pack, tmp_path), {"encoder": {"spec": "clip"}, "epochs": 1}
    encoders: list[str] = []

    def as_light(texts: list[str], encoder: str, weights: str = "") -> NDArray[np.float32]:
        encoders.append(encoder)
        return text_features(texts, "light")

    monkeypatch.setattr(sources, "text_features", as_light)
    train_run(make_recipe(recipe(other), named), tmp_path / "run", quiet=True)
    assert set(encoders) == {"clip"}
    assert "short" in json.loads((tmp_path / "run" / "history.json").read_text())[0]
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert not config["encoder"]  # of pictures nothing is known
    assert "short_queries" in evaluate_run(tmp_path / "run", figures=False).metrics

    for wrong, message in (
        (lambda texts: text_features(texts, "light")[:, :-1], "encoder.spec=clip gives 383 dimensions, but text vect"),
        (lambda texts: np.roll(text_features(texts, "light"), 1, axis=1), "encoder.spec=clip gives other vectors"),
    ):
        monkeypatch.setattr(sources, "text_features", lambda texts, encoder, weights="", by=wrong: by(texts))
        metrics = evaluate_run(tmp_path / "run", figures=False).metrics
        assert "short_queries" not in metrics
        assert any(line.startswith(f"short queries are left out: {message}") for line in metrics["left_out"])


def test_a_step_is_determined_by_the_seed_and_its_number(pack: Path) -> None:
    source, rows = source_of(pack), make_split(ITEMS, 0).train
    states: list[dict[str, torch.Tensor]] = []
    for _ in range(2):
        training = Training(make_recipe(recipe(pack)), source, rows, torch.device("cpu"))
        training.epoch(0, lambda *_: None)
        states.append(training.network.modules().state_dict())
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], rtol=0, atol=0)


def test_classes_of_few_pictures_are_left_out(pack: Path, tmp_path: Path) -> None:
    """And so is everything, where no class has ten pictures."""
    train_run(make_recipe(recipe(pack), {"epochs": 1}), tmp_path / "run", quiet=True)
    labels: NDArray[np.uint8] = np.load(pack / "labels.npy")
    split = make_split(ITEMS, 0)
    few = labels.copy()
    few[split.database[np.flatnonzero(few[split.database, 0])][9:], 0] = 0
    other = tmp_path / "pack"
    other.mkdir()
    for part in pack.iterdir():
        (other / part.name).write_bytes(part.read_bytes())
    np.save(other / "labels.npy", few)
    short = evaluate_run(tmp_path / "run", other, figures=False).metrics["short_queries"]
    assert short["left_out"] == [ANIMALS[0]] and len(short["per_class"]) == len(ANIMALS) - 1
    assert len(class_texts(ANIMALS)) == len(TEMPLATES) * len(ANIMALS)
