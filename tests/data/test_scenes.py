"""The generated set: what its pictures show, what its captions say, and that the same seed makes the same bytes."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kenthash.data.scenes import make_scenes
from kenthash.data.scenes.captions import article, enumerate_nouns, make_captions, plural, sentence
from kenthash.data.scenes.catalogue import Catalogue
from kenthash.data.scenes.compose import placed
from kenthash.data.scenes.loading import FOLDER, load_catalogue
from kenthash.data.scenes.scene import LAYERS, Scene, Thing, make_scene
from kenthash.errors import DataError, UsageError
from processes import PATIENCE

ITEMS = 700  # told
MADE = 28  # painted too
CaptionedScene = tuple[Scene, list[str]]


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


@pytest.fixture(scope="module")
def captioned(catalogue: Catalogue) -> list[CaptionedScene]:
    """Scenes and their captions, without pictures."""
    scenes = [make_scene(catalogue, np.random.default_rng([0, i])) for i in range(ITEMS)]
    return [(s, make_captions(s, catalogue, np.random.default_rng([0, i, 1]), 3)) for i, s in enumerate(scenes)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scenes") / "set"
    make_scenes(out, MADE, seed=5, processes=1)
    return out


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]


def test_folder_is_a_picture_folder(folder: Path, catalogue: Catalogue) -> None:
    rows = rows_of(folder)
    assert [row["file_name"] for row in rows] == [f"pictures/{i:06d}.jpg" for i in range(MADE)]
    assert len(list((folder / "pictures").iterdir())) == MADE
    spread = []
    for row in rows:
        with Image.open(folder / str(row["file_name"])) as picture:
            assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (224, 224))
            spread.append(np.asarray(picture).std())
        labels, texts = row["labels"], row["texts"]
        assert isinstance(labels, list) and labels and set(labels) <= set(catalogue.classes)
        assert isinstance(texts, list) and len(set(texts)) == 3
        assert row["place"] in {place.name for place in catalogue.places}
    assert min(spread) > 15  # no picture is blank
    assert "CC BY-SA 4.0" in (folder / "LICENCE.txt").read_text(encoding="utf-8")


def test_an_item_depends_on_seed_and_number_alone(folder: Path, tmp_path: Path) -> None:
    make_scenes(tmp_path / "more", MADE + 12, seed=5, processes=2)
    assert rows_of(tmp_path / "more")[:MADE] == rows_of(folder)
    for i in range(MADE):
        name = f"pictures/{i:06d}.jpg"
        assert (tmp_path / "more" / name).read_bytes() == (folder / name).read_bytes()
    make_scenes(tmp_path / "other", 3, seed=6)
    assert rows_of(tmp_path / "other") != rows_of(folder)[:3]


def test_labels_are_spread_as_in_photos(captioned: list[CaptionedScene], catalogue: Catalogue) -> None:
    names = sorted(catalogue.classes)
    labels = np.array([[name in scene.labels for name in names] for scene, _ in captioned])
    share = dict(zip(names, labels.mean(axis=0).tolist(), strict=True))
    assert len(names) >= 60 and len(catalogue.places) >= 14
    assert 2.5 < labels.sum(axis=1).mean() < 4.0 and labels.any(axis=1).all()
    assert max(share, key=lambda name: share[name]) == "person" and 0.38 < share["person"] < 0.52
    assert sorted(share.values())[-2] < 0.15 and np.median(list(share.values())) < 0.03  # a head and a long tail
    assert 0.2 < (labels[:300].astype(int) @ labels[300:].astype(int).T > 0).mean() < 0.4
    others = {name: (labels[labels[:, i]].sum(axis=1) - 1).mean() for i, name in enumerate(names) if labels[:, i].any()}
    assert others["elephant"] < 1.8 and others["fork"] > 3.0
    assert len({scene.place.name for scene, _ in captioned}) == len(catalogue.places)


def test_every_label_can_be_seen(captioned: list[CaptionedScene]) -> None:
    """Independent of the layout's boxes: count the opaque pixels that nothing painted later covers."""
    for scene, _ in captioned[:80]:
        masks = [_mask(thing) for thing in scene.things]
        for label in scene.labels:
            best = 0.0
            for i, thing in enumerate(scene.things):
                if thing.look is None or label not in thing.look.labels:
                    continue
                seen = masks[i].copy()
                for later in masks[i + 1 :]:
                    seen &= ~later
                if scene.table is not None and LAYERS[thing.zone] < LAYERS["table"]:
                    seen[round(scene.table * 224) + 1 :] = False
                best = max(best, seen.sum() / (np.asarray(placed(thing)[0].getchannel("A")) > 127).sum())
            assert best > 0.3, (label, scene.place.name)


def _mask(thing: Thing) -> np.ndarray:
    drawing, corner = placed(thing)
    canvas = Image.new("L", (224, 224))
    canvas.paste(drawing.getchannel("A"), corner)
    return np.asarray(canvas) > 127


IRREGULAR = {"person": "people", "knife": "knives", "sheep": "sheep", "fish": "fish", "deer": "deer", "skis": "skis"}


def test_captions_do_not_list_the_labels(captioned: list[CaptionedScene]) -> None:
    """Look each label up by its name, singular or plural, as whole words."""
    labels = mentioned = found_by_any = 0
    for scene, captions in captioned:
        texts = [caption.lower() for caption in captions]
        for label in scene.labels:
            forms = rf"\b({label}(s|es)?|{IRREGULAR.get(label, label)})\b"
            hits = sum(re.search(forms, text) is not None for text in texts)
            labels, mentioned, found_by_any = labels + 1, mentioned + hits, found_by_any + (hits > 0)
    assert found_by_any / labels < 0.7  # even with all three captions together
    assert 0.33 < mentioned / (3 * labels) < 0.6


def test_captions_are_clean_english(captioned: list[CaptionedScene]) -> None:
    openings: Counter[str] = Counter()
    number = "(?:two|three|four|five|several|many|some|a couple|a few|a group)"
    for _, captions in captioned:
        assert len(set(captions)) == 3
        for caption in captions:
            assert re.fullmatch(r"[A-Z].*[^ ,:]\.", caption), caption
            assert not re.search(r"  | [,.:]|[{}]|\b(\w+) \1\b", caption), caption
            assert not re.search(r"\b[Aa] (?!one|user|ewe)[aeiou]|\b[Aa]n (?!SUV)[^aeiouAEIOU]", caption), caption
            assert not re.search(rf"\b[Tt]here is {number}|\b[Tt]here are an? (?!couple|pair|few|group)", caption), (
                caption
            )
            assert not re.search(
                r"\b(two|three|four|five) (\w+ )?(person|man|woman|dog|car|bird|sheeps|fishs)\b", caption
            ), caption
            openings[caption.split()[0]] += 1
    assert len(openings) > 25 and 5 < np.mean([len(c.split()) for _, captions in captioned for c in captions]) < 16


def test_relations_that_captions_tell_hold(captioned: list[CaptionedScene], catalogue: Catalogue) -> None:
    """Find "X to the left of Y" and the like, look up who X and Y are, and compare with where they stand."""
    checked = 0
    for scene, captions in captioned:
        named: dict[str, set[str]] = {}
        for thing in scene.things:
            if thing.look is not None:
                for noun in (thing.look.noun, *thing.look.nouns):
                    named.setdefault(noun, set()).add(thing.look.labels[0])
        nouns = "|".join(sorted(map(re.escape, named), key=len, reverse=True))
        colours = "|".join(catalogue.palette)
        thing_words = rf"\b[Aa]n? (?:(?:{colours}) )?({nouns})(?: in (?:{colours}))?"
        pattern = rf"{thing_words} (?:is )?(to the left of|to the right of|in front of|behind) {thing_words}\b"
        for match in (m for caption in captions for m in re.finditer(pattern, caption)):
            sides = [[t for t in scene.things if t.look and {t.look.labels[0]} == named[match[k]]] for k in (1, 3)]
            if len(sides[0]) != 1 or len(sides[1]) != 1:
                continue  # the word may mean either of two classes
            (a,), (b,) = sides
            behind = scene.things.index(a) < scene.things.index(b) and a.y < b.y
            holds = {
                "to the left of": a.x < b.x,
                "to the right of": a.x > b.x,
                "behind": behind,
                "in front of": not behind,
            }
            assert holds[match[2]], (match[0], a, b)
            checked += 1
    assert checked > 80


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("dog", "dogs"), ("bus", "buses"), ("brush", "brushes"), ("puppy", "puppies"), ("donkey", "donkeys"),
        ("old woman", "old women"), ("passer-by", "passers-by"), ("piece of luggage", "pieces of luggage"),
        ("person in red", "people in red"), ("loaf of bread", "loaves of bread"), ("sheep", "sheep"),
    ],
)  # fmt: skip
def test_plurals(one: str, many: str, catalogue: Catalogue) -> None:
    assert plural(one, catalogue.phrases.plurals) == many


def test_small_grammar(catalogue: Catalogue) -> None:
    phrases = catalogue.phrases
    nouns = [article(word, phrases.an, phrases.a) for word in ("dog", "old dog", "SUV", "one-humped animal", "ewe")]
    assert nouns == ["a dog", "an old dog", "an SUV", "a one-humped animal", "a ewe"]
    assert [enumerate_nouns(["a", "b", "c"][:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert sentence("two dogs  at home , a cat .") == "Two dogs at home, a cat."


@pytest.mark.parametrize(
    ("file", "old", "new", "told_of"),
    [
        ("classes.yaml", "size: 0.6\n", "size: big\n", "size"),
        ("classes.yaml", "[1F418]", "[FFFFF]", "no drawing FFFFF"),
        ("classes.yaml", "tilt: 180", "tild: 180", "tild"),
        ("classes.yaml", "classes:", "classes: [", "not valid YAML"),
        ("places.yaml", "elephant: 1.0", "elefant: 1.0", "elefant"),
        ("places.yaml", "kind: chalkboard", "kind: blackboard", "blackboard"),
        ("places.yaml", "codes: [1F3D7]", "codes: [1F418]", "1F418 is a look of a class"),
        ("phrases.yaml", "{list} {place}.", "{lost} {place}.", "lost"),
        ("phrases.yaml", "  beside:", "  besides:", "beside"),
    ],
)
def test_a_broken_file_is_named_in_one_line(tmp_path: Path, file: str, old: str, new: str, told_of: str) -> None:
    for source in FOLDER.glob("*.yaml"):
        shutil.copy(source, tmp_path)
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError) as error:
        load_catalogue(tmp_path)
    assert file in str(error.value) and told_of in str(error.value) and "\n" not in str(error.value)


def test_misuse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        make_scenes(tmp_path / "none", 0, seed=0)
    with pytest.raises(UsageError, match="seed"):
        make_scenes(tmp_path / "none", 1, seed=-1)
    assert not (tmp_path / "none").exists()
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        make_scenes(tmp_path, 1, seed=0)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_a_killed_run_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    out = tmp_path / "cut"
    script = f"""
import os, signal, threading
from pathlib import Path
from kenthash.data.scenes import make_scenes

def kill_after_some() -> None:
    while not Path({str(out / "pictures/000004.jpg")!r}).exists():
        pass
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=kill_after_some, daemon=True).start()
make_scenes(Path({str(out)!r}), 5000, 0, processes=1)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=PATIENCE).returncode == -9
    assert (out / "pictures/000004.jpg").exists() and not (out / "metadata.jsonl").exists()


def test_the_demo_removes_nothing_that_it_did_not_make(tmp_path: Path) -> None:
    from kenthash.demo import run_demo

    (tmp_path / "scenes" / "pictures").mkdir(parents=True)
    (tmp_path / "scenes" / "script.txt").write_text("act one")
    with pytest.raises(UsageError, match="scenes: is not an empty folder"):
        run_demo(tmp_path, 200, print)
    assert (tmp_path / "scenes" / "script.txt").read_text() == "act one"
