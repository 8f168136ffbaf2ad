"""Recipes: layers, checks, files."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from kenthash.errors import DataError, UsageError
from kenthash.training.recipe import find_recipe, make_recipe, parse_set, read_recipe, write_recipe


def test_layers_go_over_one_another_and_over_the_methods_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("method: dsph\nepochs: 7\noptimizer: {lr: 0.5}\n")
    recipe = make_recipe(read_recipe(path), parse_set(["optimizer.lr=1e-4", "settings.alpha=2"]), {"bits": 16})
    assert (recipe.method, recipe.epochs, recipe.bits) == ("dsph", 7, 16)
    assert recipe.optimizer.lr == 1e-4 and recipe.optimizer.beta2 == 0.98
    assert recipe.proxy_optimizer.name == "sgd" and recipe.proxy_optimizer.lr == 0.02  # what DSPH itself asks for
    assert recipe.settings == {"alpha": 2}


def test_a_written_recipe_is_complete_and_gives_the_same_run(tmp_path: Path) -> None:
    recipe = make_recipe({"method": "kdph", "bits": 32, "settings": {"zeta": 0.0}})
    write_recipe(tmp_path / "recipe.yaml", recipe)
    assert yaml.safe_load((tmp_path / "recipe.yaml").read_text()) == asdict(recipe)
    assert make_recipe(read_recipe(tmp_path / "recipe.yaml")) == recipe


def test_random_heads_are_one_recipe_however_they_are_written() -> None:
    """Otherwise a run that has one spelling would not go on with the other, and a leaderboard has two rows of them."""
    assert make_recipe(parse_set(["start="])) == make_recipe({"start": None}) == make_recipe({})


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"method": "nothing"}, "method 'nothing': choose one of"),
        ({"bits": 12}, "multiple of 8"),
        ({"epochs": 0}, "epochs: 0 is too small"),
        ({"epochs": "many"}, "epochs: 'many' is not a whole number"),
        ({"seed": 10**25}, "seed: 10000000000000000000000000 is too large"),
        ({"head": {"kind": "mlp", "hidden": 10**11}}, "head.hidden: 100,000,000,000 is more than 1,048,576"),
        ({"epoch": 3}, "did you mean epochs"),
        ({"optimizer": {"rate": 1}}, "optimizer.rate: no such setting, choose one of name, lr"),
        ({"optimizer": {"lr": float("nan")}}, "optimizer.lr: nan is not a finite number"),
        ({"optimizer": {"beta1": 1.5}}, "optimizer.beta1: 1.5 is too large, it must be below 1"),
        (
            {"proxy_optimizer": {"weight_decay": -1}},
            "proxy_optimizer.weight_decay: -1 is too small, .* 0 or more",
        ),
        ({"encoder": {"lr": -1}}, "encoder.lr: -1 is too small"),
        ({"clip": -1.0}, "clip: -1.0 is too small, it must be above 0 or null"),
        ({"clip": "none"}, "clip: 'none' is not a number or null"),
        ({"label_noise": 2}, "label_noise: 2 is too large, it must be 1 or less"),
        ({"optimizer": {"lr": True}}, "optimizer.lr: True is not a number"),
        ({"epochs": 3.0}, "epochs: 3.0 is not a whole number"),
        ({"head": {"hidden": "128"}}, "head.hidden: '128' is not a whole number"),
        ({1: 2}, "^1: no such setting, choose one of data, method"),
        ({"epochs": "x" * 1000}, "^epochs: .{,50} is not a whole number$"),
        ({"method": ["kdph"]}, "method .*kdph.*: choose one of"),
        ({"settings": None}, "settings: a section with kcph's own settings, not None"),
        ({"optimizer": 3}, "optimizer: a section with"),
        ({"protocol": "best"}, "protocol: 'best' is not 'honest' or 'paper'"),
        ({"settings": {"margn": 1}}, "settings.margn: kcph has no such setting, choose one of ranking"),
        ({"settings": {"proxy": "ball"}}, "settings.proxy: 'ball' is not 'kent', 'vmf', 'point' or 'free'"),
        ({"head": {"dropout": 1.5}}, "dropout in"),
    ],
)
def test_wrong_values_are_named(layer: dict[Any, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_recipe(layer)


def test_set_must_be_an_assignment() -> None:
    with pytest.raises(UsageError, match="name=value"):
        parse_set(["epsilon"])
    with pytest.raises(UsageError, match="gives optimizer itself a value"):
        parse_set(["optimizer=3", "optimizer.lr=1"])


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    for text in ("[1, 2", "just words"):
        bad.write_text(text)
        with pytest.raises(DataError, match=r"bad\.yaml"):
            read_recipe(bad)
    with pytest.raises(UsageError, match=r"recipes that come with kenthash: .*kdph"):
        find_recipe("unheard-of")


def test_a_folder_does_not_hide_a_recipe_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kdph").mkdir()
    monkeypatch.chdir(tmp_path)
    assert read_recipe(find_recipe("kdph"))["method"] == "kdph"


ABLATION = {
    "kdph-point": ("proxy", "point"),
    "kdph-vmf": ("proxy", "vmf"),
    "kdph-no-irrelevance": ("epsilon", 0.0),
    "kdph-no-alignment": ("zeta", 0.0),
    "kdph-no-uniform": ("eta", 0.0),
}


@pytest.mark.parametrize("name", ABLATION)
def test_a_recipe_of_the_ablation_changes_one_setting_and_nothing_else(name: str) -> None:
    setting, value = ABLATION[name]
    expected = make_recipe({"method": "kdph", "settings": {setting: value}})
    assert make_recipe(read_recipe(find_recipe(name))) == expected != make_recipe({"method": "kdph"})


def test_one_name_has_one_meaning() -> None:
    """`--recipe kdph` and `--method kdph` are the same method; the print and the authors' code have their own names."""
    default = make_recipe({"method": "kdph"})
    assert make_recipe(read_recipe(find_recipe("kdph"))) == default
    printed, authors = (make_recipe(read_recipe(find_recipe(f"kdph-{name}"))) for name in ("printed", "authors"))
    assert printed.settings["irrelevance"] == "paper" and printed.settings["uniform"] == "trace"
    assert printed.proxy_optimizer == printed.optimizer  # the paper has one Adam for all
    assert authors.settings["proxy"] == "free" and authors.settings["concentration"] == 1.0
    weights = ("epsilon", "zeta", "eta", "axes", "pairs", "triplets")
    assert [default.settings[name] for name in weights] == [printed.settings[name] for name in weights]
    for name in ("kdph-coco20k", "kdph-scenes"):
        written = make_recipe(read_recipe(find_recipe(name)))
        assert (written.settings, written.proxy_optimizer) == (default.settings, default.proxy_optimizer)


def test_every_recipe_of_a_data_set_is_complete() -> None:
    for path in find_recipe("kdph").parent.glob("*.yaml"):
        written = read_recipe(path)
        if path.stem in (*ABLATION, "kdph", "pretrained"):  # which are of no data set
            continue
        resolved = asdict(make_recipe(written))
        resolved.pop("data")
        assert written.keys() == resolved.keys(), path.name
        for section, values in resolved.items():
            if isinstance(values, dict):
                assert written[section].keys() == values.keys(), f"{path.name}: {section}"


@pytest.mark.parametrize(
    "text", ["[" * 50_000, "{a: " * 50_000, "1" * 5_000, "2024-13-45"], ids=["[", "{", "1", "date"]
)
def test_values_that_yaml_fails_on_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"epochs: {text}\n")
    with pytest.raises(DataError, match=r"mine\.yaml: not valid YAML: ") as error:
        read_recipe(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500
    with pytest.raises(UsageError, match=r"--set epochs=.* is not a value") as refused:
        parse_set([f"epochs={text}"])
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500
