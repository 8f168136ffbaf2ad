"""The targets of `kenthash reproduce` that the paper does not have, end to end on a small pack."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kenthash.analysis.precision import precision_by_label_count
from kenthash.analysis.subject import Subject
from kenthash.cli import app
from kenthash.codes import pack as codes_of
from kenthash.errors import DataError, UsageError
from kenthash.evaluation import map_of
from kenthash.files import read_json
from kenthash.studies.analyze import analyse, as_text
from kenthash.studies.grid import run_all
from kenthash.studies.outcome import LeftOut, Outcome
from kenthash.studies.reproduce import reproduce
from kenthash.studies.study import Study
from kenthash.studies.targets import OF_OWN_PAIRS, PRACTICE, TARGETS, companions
from kenthash.studies.targets.companions import COMPANIONS, CONDITIONS, HUBS, KINDS, make_labels, with_companions
from kenthash.studies.targets.conditions import few, long_codes, missing, noise, tried
from kenthash.studies.targets.nested import nested
from kenthash.studies.targets.transfer import transfer
from kenthash.studies.targets.unseen import left_out_classes, unseen
from kenthash.training.recipe import make_recipe, read_recipe
from kenthash.training.run_folder import Run
from packs import remove_captions, write_pack

BITS = 128  # so that `long` has three lengths


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("practice")
    return Study(write_pack(folder / "pack", items=300, classes=20), folder / "out", bits=(16, BITS), seeds=1, epochs=2)


def written(study: Study, outcome: Outcome) -> list[dict[str, str]]:
    """The outcome's first table as it is written, beside a figure."""
    folder = study.out / outcome.target
    outcome.write(folder)
    assert outcome.seen and (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    with (folder / "table.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def mean_map(study: Study, name: str) -> float:
    metrics = read_json(study.out / "runs" / f"{name}-0" / "metrics.json")
    return float(np.mean([metrics[direction]["map"] for direction in ("i2t", "t2i")]))


def test_noise(study: Study) -> None:
    rows = written(study, noise(study, ["dsph"]))
    names = ["", "-noise0.2", "-noise0.4", "-noise0.6", "", "-unlabelled0.2", "-unlabelled0.4", "-unlabelled0.6"]
    assert [row["Condition"] for row in rows] == ["wrong labels"] * 4 + ["missing labels"] * 4
    for row, name in zip(rows, names, strict=True):
        assert float(row["DSPH"]) == pytest.approx(mean_map(study, f"dsph{name}-{BITS}"), abs=1e-6)
    recipe = make_recipe(read_recipe(study.out / "runs" / f"dsph-unlabelled0.4-{BITS}-0" / "recipe.yaml"))
    assert (recipe.lacking.labels, recipe.label_noise) == (0.4, 0.0)


def test_missing(study: Study) -> None:
    rows = written(study, missing(study, ["dsph", "kaph"]))
    assert len(rows) == 8 and {row["Condition"] for row in rows} == {"without captions", "without pictures"}
    assert len({row["KAPH"] for row in rows}) == 7  # nothing missing stands twice
    with (study.out / "missing" / "own.csv").open(encoding="utf-8") as stream:
        assert all(0 <= float(row["DSPH"]) <= 100 for row in csv.DictReader(stream))


def test_few(study: Study) -> None:
    rows = written(study, few(study, ["dsph"]))
    sizes = [16, 33, 67, 135]  # an eighth, a quarter and a half of the training items, and all
    assert [row["Training items"] for row in rows] == [str(size) for size in sizes]
    runs = [Run.open(study.out / "runs" / f"dsph{name}-{BITS}-0", "cpu") for name in ("-few16", "")]
    assert [len(run.split.train) for run in runs] == [16, 135]
    assert np.array_equal(runs[0].split.query, runs[1].split.query)


def test_long_codes(study: Study) -> None:
    rows = written(study, long_codes(study, ["dsph", "cca-itq"]))
    assert [row["Bits"] for row in rows] == ["128 bits", "256 bits", "512 bits"]
    assert float(rows[2]["DSPH"]) == pytest.approx(mean_map(study, "dsph-512"), abs=1e-6)


def test_unseen_classes(study: Study) -> None:
    """Relevance and queries are by the classes that are left out, and training has none of them."""
    classes = left_out_classes(study)
    assert classes and len(classes) < len(study.classes) / 2
    rows = written(study, unseen(study, ["dsph"]))
    arms = {"Never seen": "dsph-unseen", "Seen in training": "dsph-as-many"}
    columns = [study.classes.index(name) for name in classes]
    labels = study.labels[:, columns]
    sizes = []
    for column, name in arms.items():
        run = Run.open(study.out / "runs" / f"{name}-{BITS}-0", "cpu")
        sizes.append(len(run.split.train))
        assert labels[run.split.train].any() == (column == "Seen in training")
        query_rows = np.array([row for row in run.split.query if labels[row].any()])
        q, d = (run.outputs(study.source, part) for part in (query_rows, run.split.database))
        of = labels[query_rows], labels[run.split.database]
        maps = [map_of(codes_of(a), codes_of(b), *of) for a, b in ((q.image, d.text), (q.text, d.image))]
        assert float(rows[0][column]) == pytest.approx(np.mean(maps), abs=1e-6)
    assert sizes[0] == sizes[1]


def test_transfer(study: Study, tmp_path: Path) -> None:
    other = write_pack(tmp_path / "other", items=200, classes=6, seed=1)
    both = Study(study.data, study.out, study.bits, 1, 2, other=other)
    (row,) = written(both, transfer(both, ["dsph"]))
    home = mean_map(study, f"dsph-other-{BITS}")
    assert row["mAP, trained there"] == f"{home:.4f}"  # asked on its own set, a run has its own figure
    assert row["mAP, trained elsewhere"] != row["mAP, trained there"]
    with pytest.raises(LeftOut, match="another data set is needed, to ask the models: give --other PACK"):
        transfer(study)
    (other / "image.npy").unlink()
    np.save(other / "image.npy", np.zeros((200, 7), np.float32))
    with pytest.raises(DataError, match=r"its vectors are by another encoder than those of .*: encode both"):
        transfer(Study(study.data, study.out, study.bits, 1, 2, other=other))


def test_nested_codes(study: Study) -> None:
    """Against a model of each length, the longest included, by seeds."""
    (row, longest) = written(study, nested(study))
    metrics = {
        name: read_json(study.out / "runs" / f"kcph{name}-0" / "metrics.json")
        for name in (f"-nested-{BITS}", "-16", f"-{BITS}")
    }
    first = metrics[f"-nested-{BITS}"]["nested"]["16"]
    for column, figures in (("nested", first), ("alone", metrics["-16"])):
        of_both = [figures[d] for d in ("i2t", "t2i")]
        assert row[f"mAP {column}"] == f"{np.mean([d['map'] for d in of_both]):.4f}"
        assert row[f"R@10 {column}"] == f"{100 * np.mean([d['instance_recall']['10'] for d in of_both]):.1f}"
    assert longest["Bits"] == str(BITS) and longest["mAP nested"] != longest["mAP alone"]
    gap = float(row["mAP difference"].replace("−", "-"))
    assert gap == pytest.approx(float(row["mAP nested"]) - float(row["mAP alone"]), abs=2e-4)
    assert (study.out / "nested" / "seeds.csv").read_text().count("\n") == 3
    with pytest.raises(LeftOut, match="give them with --bits, for example 32,64"):
        nested(Study(study.data, study.out, (64,), 1, 2))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A pack with captions and no label at all."""
    folder = tmp_path_factory.mktemp("bare")
    pack = write_pack(folder / "pack", items=200)
    np.save(pack / "labels.npy", np.zeros((200, 0), np.uint8))
    (pack / "meta.json").write_text('{"name": "bare", "classes": []}')
    return Study(pack, folder / "out", bits=(16, 256), seeds=1, epochs=2)


def test_without_labels_targets_are_of_own_pairs(bare: Study) -> None:
    for outcome in (*(target(bare, ["kcph"]) for target in (few, missing, long_codes)), nested(bare)):
        assert written(bare, outcome) and outcome.target in OF_OWN_PAIRS
        text = outcome.text()
        assert text.count("mAP") == 1 and "- mAP is left out: its items have no labels." in text and "nan" not in text
    assert tried(bare) == ("kcph", "ucch", "ucmfh")
    (outcome,) = reproduce(Study(bare.data, bare.out, (16,), 1, 2), "bytes")
    assert [sheet.name for sheet in outcome.sheets] == ["table"] and "nan" not in outcome.text()
    for name in ("noise", "unseen", "table1", "shape", "all"):
        with pytest.raises(DataError, match=f"have no labels: what {name} measures is of shared labels"):
            reproduce(bare, name)


def test_items_without_a_caption_have_no_part_in_figures(tmp_path: Path) -> None:
    pack = write_pack(tmp_path / "pack", items=300)
    remove_captions(pack, np.arange(1, 300, 2))  # the last one, too
    study = Study(pack, tmp_path / "out", (16,), 1, 2)
    reproduce(study, "bytes")
    with pytest.raises(UsageError, match="without-labels: holds the vectors of other data: choose another --out"):
        reproduce(replace(study, data=write_pack(tmp_path / "other", items=300, seed=1)), "bytes")
    job = study.job("dsph", 16, 0, {"method": "dsph"})
    run_all([job])
    subject, metrics = Subject(Run.open(job.out, "cpu"), study.source), read_json(job.out / "metrics.json")
    by_count, _ = precision_by_label_count([subject])
    total = sum(mean * number for mean, number in by_count.values()) / sum(number for _, number in by_count.values())
    assert total == pytest.approx(np.mean([metrics[d]["map"] for d in ("i2t", "t2i")]), abs=1e-5)
    assert not np.isin(subject.unseen, np.arange(1, 300, 2)).any()


def test_transfer_to_data_without_labels(study: Study, bare: Study) -> None:
    both = Study(study.data, study.out, study.bits, 1, 2, other=bare.data)
    (row,) = written(both, transfer(both, ["kcph"]))
    assert list(row) == ["Method", "R@10, trained elsewhere", "R@10, trained there"]


def test_analyze_without_labels(bare: Study) -> None:
    nested(bare)
    result = analyse(bare.out / "runs" / "kcph-16-0")
    metrics = read_json(bare.out / "runs" / "kcph-16-0" / "metrics.json")
    assert result["instance_recall"]["t2i"] == metrics["t2i"]["instance_recall"]
    assert "classes" not in result and "map_by_labels" not in result
    assert result["left_out"][0] == "mAP, and precision by labels and by class, are left out: its items have no labels"
    assert result["left_out"][0] in as_text(result) and "| image → text |" in as_text(result)


def test_the_command_prints_json(bare: Study) -> None:
    options = ["--data", str(bare.data), "--out", str(bare.out), "--bits", "16,256", "--seeds", "1", "--epochs", "2"]
    printed = CliRunner().invoke(app, ["reproduce", "nested", *options, "--json"])
    result = json.loads(printed.stdout)
    assert str(bare.out / "nested" / "table.csv") in result["written"]
    (outcome,) = result["targets"]
    assert outcome["target"] == "nested" and [row["Bits"] for row in outcome["tables"][0]["rows"]] == ["16", "256"]
    assert "KCPH: short texts are not learned from" in printed.stderr and "--set" not in printed.stderr


def test_they_are_asked_for_by_name(study: Study) -> None:
    assert not PRACTICE.keys() & TARGETS.keys()
    with pytest.raises(
        UsageError, match=r"there is no target 'fewer': choose from table1, .*nested, companions, or all"
    ):
        reproduce(study, "fewer")


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.name)
def test_a_hub_comes_with_its_own_companions_or_with_any(condition: companions.Condition) -> None:
    labels = make_labels(condition, np.random.default_rng(0)).astype(np.int64)
    hubs, groups = labels[:, :HUBS], labels[:, HUBS:].reshape(len(labels), HUBS, COMPANIONS).any(axis=2)
    own = (hubs & groups).sum() / hubs.sum()
    assert own == 1 if condition.strength == 1 else 0.2 < own < 0.4
    frequency = labels.mean(axis=0)  # the same at every strength
    assert frequency[:HUBS] == pytest.approx(0.15, abs=0.02) and frequency[HUBS:] == pytest.approx(0.03, abs=0.015)


def test_companions(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companions, "ITEMS", 200)
    rows = written(study, with_companions(study))
    assert len(rows) == 3 * len(CONDITIONS)
    for row, condition in zip(rows[::3], CONDITIONS, strict=True):
        maps = {kind: mean_map(study, f"companions-{condition.name}-{kind}-16") for kind in KINDS}
        assert {title: float(row[title]) for title in KINDS.values()} == pytest.approx(
            {title: maps[kind] for kind, title in KINDS.items()}, abs=1e-6
        )
        assert float(row["Kent − vMF"].replace("−", "-")) == pytest.approx(maps["kent"] - maps["vmf"], abs=1e-4)
    with (study.out / "companions" / "proxies.csv").open(encoding="utf-8") as stream:
        kent, default, vmf, point = list(csv.DictReader(stream))[:4]
    assert float(kent["share of the shape"]) > 0.1 > float(default["share of the shape"]) > 0
    # Held at 0: its scores are those of a von Mises-Fisher distribution.
    assert float(vmf["β"]) == float(vmf["share of the shape"]) == 0 and point["κ"] == ""
