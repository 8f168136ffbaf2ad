"""Codes from elsewhere are scored as our own are, and only results of the same rules are ranked together."""

import csv
import html
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from kenthash.cli import app
from kenthash.codes import pack
from kenthash.data.pack import read_pack
from kenthash.errors import DataError, UsageError
from kenthash.studies.compare import Comparison, compare_sheets
from kenthash.studies.leaderboard import make_leaderboard
from kenthash.studies.submission import evaluate_submission
from kenthash.training.evaluate import evaluate_run
from kenthash.training.recipe import make_recipe
from kenthash.training.run_folder import Run
from kenthash.training.train import train_run
from packs import write_pack


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and its very codes as somebody else's submission."""
    folder = tmp_path_factory.mktemp("results")
    data = write_pack(folder / "pack")
    train_run(make_recipe({"data": str(data), "method": "dsph", "bits": 16, "epochs": 2}), folder / "run", quiet=True)
    evaluate_run(folder / "run", figures=False)
    run = Run.open(folder / "run", "cpu")
    outputs = run.outputs(run.source(), np.arange(400))
    theirs = folder / "theirs"
    theirs.mkdir()
    np.save(theirs / "image.npy", pack(outputs.image))
    np.save(theirs / "text.npy", pack(outputs.text))
    (theirs / "submission.yaml").write_text("name: <Theirs> $x{$\nprotocol: honest\nrecipe: {rate: 0.1}\n")
    evaluate_submission(theirs, read_pack(data))
    return folder


def test_the_same_codes_have_the_same_figures(results: Path) -> None:
    ours, theirs = (json.loads((results / name / "metrics.json").read_text()) for name in ("run", "theirs"))
    names = ("bits", "seed", "ties", "protocol", "split", "data_digest", "code_version")
    assert {name: theirs[name] for name in names} == {name: ours[name] for name in names}
    for direction in ("i2t", "t2i", "i2i", "t2t"):
        assert theirs[direction].items() <= ours[direction].items()
    assert theirs["t2i"]["instance_recall"]["10"] > 0


def test_a_page_of_both(results: Path) -> None:
    board = make_leaderboard([results])
    assert [(row.name, row.fidelity) for row in board.rows] == [("DSPH", "code"), ("<Theirs> $x{$", "submitted")]
    assert board.rows[0].cells["i2t", 16].maps == board.rows[1].cells["i2t", 16].maps
    page = board.page()
    assert "&lt;Theirs&gt; $x{$" in page and "<Theirs>" not in page
    assert "rate: 0.1" in page and "proxy_optimizer" in page
    assert "<h2>Both directions</h2>" in page and page.count("<table>") == 3  # one per task
    assert not board.published  # the pack is no benchmark


def test_rows_are_ranked_and_recipes_told_apart(results: Path, tmp_path: Path) -> None:
    """The best is first; of a second recipe of the same method the page says what differs."""
    for name, share in (("worse", 0.5), ("better", 1.0)):
        theirs = shutil.copytree(results / "theirs", tmp_path / name)
        metrics = json.loads((theirs / "metrics.json").read_text())
        with np.load(theirs / "per_query_ap.npz") as scores:
            np.savez(theirs / "per_query_ap.npz", **{d: scores[d] * share for d in scores})
            for direction in ("i2t", "t2i"):
                metrics[direction]["map"] = round(float(scores[direction].mean()) * share, 6)
        (theirs / "metrics.json").write_text(json.dumps(metrics))
        (theirs / "submission.yaml").write_text(f"name: {name}\nprotocol: honest\n")
    again = shutil.copytree(results / "run", tmp_path / "again")
    stored = yaml.safe_load((again / "recipe.yaml").read_text())
    (again / "recipe.yaml").write_text(yaml.safe_dump(stored | {"epochs": 3, "start": "light"}))
    board = make_leaderboard([tmp_path / "worse", tmp_path / "better", results / "run", again])
    assert [row.name for row in board.rows] == ["better", "DSPH", "DSPH (2)", "worse"]
    assert "Ranked by mAP at 16 bits" in board.note and "seed 0." in board.note
    difference = "unlike DSPH: start light, not ''; epochs 3, not 2"
    assert board.differences == {"DSPH (2)": difference}
    assert html.escape(difference) in board.page() and list(board.recipes) == [row.name for row in board.rows]


def test_a_recipe_of_the_page_makes_the_run_again(results: Path) -> None:
    (recipe,) = (text for name, text in make_leaderboard([results / "run"]).recipes.items() if name == "DSPH")
    settings = yaml.safe_load(recipe)
    own = {"data": str(results / "pack"), "bits": 16, "seed": 0}
    assert make_recipe(settings, own) == make_recipe(yaml.safe_load((results / "run" / "recipe.yaml").read_text()))


NAN = float("nan")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"i2t": None}, "i2t: "),
        ({"i2t": {"map": NAN, "queries": 40}}, "i2t.map: "),
        ({"i2t": {"map": "0.9", "queries": 40}}, "i2t.map: "),
        ({"i2t": {"map": 40.0, "queries": 40}}, "i2t.map: "),
        ({"i2t": {"instance_recall": {"10": None}}}, "i2t.instance_recall.10: "),
        ({"i2t": {"instance_recall": {"ten": 0.5}}}, "instance_recall.ten"),
        ({"i2t": {"instance_recall": {"10": 0.5}}}, "of both directions, or of none"),
        ({"i2t": {}, "t2i": {}}, "it has neither"),
        ({"bits": 12}, "bits: "),
        ({"bits": None}, "bits: "),
        ({"seed": 0.5}, "seed: "),
        ({"ties": ["expected"]}, "ties: "),
        ({"real_valued_map": {"i2t": 0.5}}, "`real_valued_map` has to have both"),
        ({"i2t": {"map": 0.99, "queries": 40, "instance_recall": {}}}, "the mean of i2t is not the mAP"),
    ],
)
def test_faults_of_metrics_from_elsewhere(
    results: Path, tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    """They are one line that names the file and the value, whatever a stranger wrote."""
    theirs = shutil.copytree(results / "theirs", tmp_path / "theirs")
    metrics = json.loads((theirs / "metrics.json").read_text())
    (theirs / "metrics.json").write_text(json.dumps(metrics | changed))
    with pytest.raises(DataError) as error:
        make_leaderboard([theirs])
    assert message in str(error.value) and str(theirs) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "null", "[1]", '{"bits":', "[" * 100_000])
def test_metrics_that_are_no_json_object(results: Path, tmp_path: Path, text: str) -> None:
    theirs = shutil.copytree(results / "theirs", tmp_path / "theirs")
    (theirs / "metrics.json").write_text(text)
    with pytest.raises(DataError, match=r"metrics\.json"):
        make_leaderboard([theirs])


def test_folders_without_results(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no result below"):
        make_leaderboard([tmp_path])
    with pytest.raises(DataError, match="there is no such folder"):
        make_leaderboard([tmp_path / "nowhere"])


def test_a_name_of_two_lines_is_one_row(results: Path, tmp_path: Path) -> None:
    theirs = shutil.copytree(results / "theirs", tmp_path / "theirs")
    (theirs / "submission.yaml").write_text('name: "a\\n\\nb|c"\nprotocol: honest\n')
    table = make_leaderboard([theirs]).sheet().markdown()
    assert r"| I2T | a b\|c |" in table


def test_without_labels_figures_are_of_own_pairs(results: Path, tmp_path: Path) -> None:
    """And nothing speaks of mAP but the line that says why there is none."""
    theirs = shutil.copytree(results / "theirs", tmp_path / "theirs")
    dataset = replace(read_pack(results / "pack"), labels=np.zeros((400, 0), np.uint8), classes=[])
    scored = evaluate_submission(theirs, dataset)
    before = json.loads((results / "theirs" / "metrics.json").read_text())
    for direction in ("i2t", "t2i"):
        assert scored.metrics[direction]["instance_recall"] == before[direction]["instance_recall"]
    assert set(scored.metrics) & set(before) >= {"i2t", "t2i", "bits"} and "i2i" not in scored.metrics
    assert "mAP and other figures by shared labels are left out: its items have no labels" in scored.text()
    board = make_leaderboard([tmp_path])
    assert "mAP" not in board.note.replace("no part in mAP", "") and "real" not in board.note
    assert board.sheet().head[4:] == ["16 R@10"] and "<table>" in board.page()


def test_real_valued_controls_of_a_comparison(tmp_path: Path) -> None:
    """They stand above the methods; those of other rules, or that a folder does not keep, are said to be missing."""
    data, out = write_pack(tmp_path / "pack", items=200), tmp_path / "out"
    compare_sheets(Comparison(data, out, ("lsh", "cosine"), (16,), 2, {}))
    board = make_leaderboard([out])
    assert [(row.name, row.fidelity) for row in board.rows] == [("cosine", "control"), ("lsh", "control")]
    cell = board.rows[0].cells["i2t", 16]
    with (out / "table.csv").open() as stream:
        row = next(row for row in csv.DictReader(stream) if (row["task"], row["method"]) == ("I2T", "cosine"))
    assert cell.mean == pytest.approx(float(row["map_mean"]), abs=1e-6)
    assert cell.recall_mean(10) == pytest.approx(float(row["recall_at_10"]), abs=1e-6)
    assert "Ranked by real values, no codes: cosine." in board.note
    record = json.loads((out / "controls.json").read_text())
    (out / "controls.json").write_text(json.dumps(record | {"protocol": "paper"}))
    assert "Controls of out are left out: the protocol differs." in make_leaderboard([out]).note
    faults: list[dict[str, Any]] = [
        {"controls": 1},
        {"splits": {}},
        {"controls": {"x": {"16": {"i2t": {"map": [NAN]}}}}},
    ]
    for changed in faults:
        (out / "controls.json").write_text(json.dumps(record | changed))
        with pytest.raises(DataError, match=r"controls\.json: .*make it again with the same `kenthash compare`"):
            make_leaderboard([out])
    (out / "controls.json").unlink()
    board = make_leaderboard([out])
    assert [row.name for row in board.rows] == ["lsh"] and "controls of out are not shown" in board.note


def test_the_command_prints_json(results: Path, tmp_path: Path) -> None:
    command = ["leaderboard", str(results), "--out", str(tmp_path / "page.html"), "--json"]
    printed = CliRunner().invoke(app, command)
    result = json.loads(printed.stdout)
    assert result["written"] == [str(tmp_path / "page.html")] and (tmp_path / "page.html").is_file()
    methods = [(row["Task"], row["Method"]) for row in result["tables"][0]["rows"]]
    assert methods == [(task, name) for task in ("I2T", "T2I", "Mean") for name in ("DSPH", "<Theirs> $x{$")]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ties", "stable", "the tie rule differs (stable and expected)"),
        ("protocol", "paper", "the protocol differs"),
        ("data_digest", "0", "the data (ids and labels) differs"),
        ("code_version", "0.0.1", "the version of the evaluator differs"),
        ("split", "0", "the split of seed 0 differs"),
        ("seed", 1, "no seed in common"),
    ],
)
def test_other_rules_are_refused(results: Path, tmp_path: Path, name: str, value: object, message: str) -> None:
    other = shutil.copytree(results / "theirs", tmp_path / "other")
    metrics = json.loads((other / "metrics.json").read_text())
    (other / "metrics.json").write_text(json.dumps(metrics | {name: value}))
    with pytest.raises(DataError, match=message.replace("(", r"\(").replace(")", r"\)")):
        make_leaderboard([results / "run", other])


def test_a_length_without_all_seeds_is_left_out(results: Path, tmp_path: Path) -> None:
    """Rows are compared over the seeds that all of them have."""
    for bits, seed in ((16, 0), (16, 1), (32, 1)):
        run = shutil.copytree(results / "run", tmp_path / f"run-{bits}-{seed}")
        for path, load, dump in (
            ("metrics.json", json.loads, json.dumps),
            ("recipe.yaml", yaml.safe_load, yaml.safe_dump),
        ):
            values = load((run / path).read_text()) | {"bits": bits, "seed": seed}
            values |= {"split": f"{seed}"} if path == "metrics.json" else {}
            (run / path).write_text(dump(values))
    assert sorted(make_leaderboard([tmp_path]).rows[0].cells) == [("i2t", 16), ("t2i", 16)]


def test_no_length_with_all_seeds(results: Path, tmp_path: Path) -> None:
    for bits, seed in ((16, 0), (32, 1)):
        theirs = shutil.copytree(results / "theirs", tmp_path / f"{bits}")
        metrics = json.loads((theirs / "metrics.json").read_text())
        (theirs / "metrics.json").write_text(json.dumps(metrics | {"bits": bits, "seed": seed, "split": f"{seed}"}))
    with pytest.raises(DataError, match="no row has all the seeds"):
        make_leaderboard([tmp_path])


def test_a_table_beside_the_results_that_is_none_of_ours(results: Path, tmp_path: Path) -> None:
    """Its field is too long for a CSV reader."""
    shutil.copytree(results / "theirs", tmp_path / "theirs")
    (tmp_path / "table.csv").write_text("method," + "x" * 200_000 + "\n")
    assert make_leaderboard([tmp_path]).rows


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("protocol: honest", "does not say its name"),
        ("name: x", "does not say its protocol"),
        ("name: x\nprotocol: mine", "protocol: 'mine' is not"),
        ("name: x\nprotocol: honest\nseeds: 3", "did you mean seed"),
        ("name: 5\nprotocol: honest", r"submission\.yaml: name: 5 is not text"),
    ],
)
def test_faults_of_a_description(results: Path, tmp_path: Path, description: str, message: str) -> None:
    theirs = shutil.copytree(results / "theirs", tmp_path / "theirs")
    (theirs / "submission.yaml").write_text(description)
    with pytest.raises((DataError, UsageError), match=message):
        evaluate_submission(theirs, read_pack(results / "pack"))


def test_codes_that_do_not_fit_the_data(results: Path, tmp_path: Path) -> None:
    theirs = shutil.copytree(results / "theirs", tmp_path / "theirs")
    codes = np.load(theirs / "image.npy")
    for wrong, message in (
        (codes[:-1], "399 codes, but the data has 400"),
        (codes / 2, "must be packed uint8"),
        (codes.repeat(1000, axis=1), "16000 bits: the code length"),
        (codes[:0], "there are no submitted codes"),
    ):
        np.save(theirs / "image.npy", wrong)
        with pytest.raises(DataError, match=f"image.npy: .*{message}"):
            evaluate_submission(theirs, read_pack(results / "pack"))


DOUBLED = ", ".join(f"a{n}: &a{n} {{k: *a{n - 1}, l: *a{n - 1}}}" for n in range(1, 30))  # each twice the one before


@pytest.mark.parametrize(
    "recipe",
    [
        f"{{a0: &a0 {{k: 1}}, {DOUBLED}}}",
        "&a {again: *a}",
        f"{{{', '.join(f'k{n}: {n}' for n in range(10_000))}}}",
        f"{{text: {'x' * (1 << 20)}}}",
    ],
    ids=["doubled", "endless", "wide", "long"],
)
def test_a_recipe_that_is_too_large_is_refused(results: Path, tmp_path: Path, recipe: str) -> None:
    theirs = shutil.copytree(results / "theirs", tmp_path / "theirs")
    (theirs / "submission.yaml").write_text(f"name: x\nprotocol: honest\nrecipe: {recipe}\n")
    with pytest.raises(DataError, match=r"submission\.yaml: .*a recipe has at most"):
        make_leaderboard([theirs])
