"""The paper's tables and figures, made on a small pack, and what they must agree with."""

import base64
import csv
import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from kenthash.errors import DataError, UsageError
from kenthash.files import read_json
from kenthash.runs.record import has_record, read_record
from kenthash.runs.train import train_run
from kenthash.studies.groups import read_groups
from kenthash.studies.report import render
from kenthash.studies.reproduce import reproduce
from kenthash.studies.sheet import Sheet, parse_markdown
from kenthash.studies.single import analyse, as_text
from kenthash.studies.study import Study
from kenthash.studies.targets.ablation import VARIANTS, layer_of
from kenthash.studies.targets.causes import variants
from kenthash.studies.targets.sensitivity import grid
from kenthash.studies.targets.tsne import kinds_of
from kenthash.training.recipe import make_recipe
from packs import write_pack

PROXY_TARGETS = ("trajectories", "oscillation", "chaos", "collapse", "gtsd", "topology", "tsne")


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    path = write_pack(tmp_path_factory.mktemp("data") / "pack", items=500)
    groups = {"even": [f"class {c}" for c in range(0, 12, 2)], "odd": [f"class {c}" for c in range(1, 12, 2)]}
    (path / "groups.json").write_text(json.dumps(groups))
    return path


@pytest.fixture(scope="module")
def study(pack, tmp_path_factory):
    return Study(pack, tmp_path_factory.mktemp("study"), bits=(16,), seeds=1, epochs=2)


@pytest.fixture(scope="module")
def outcomes(study):
    return {name: reproduce(study, name)[0] for name in PROXY_TARGETS}


def table(study, target):
    with (study.out / target / "table.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_every_target_writes_tables_and_pictures(study, outcomes):
    for name, outcome in outcomes.items():
        folder = study.out / name
        assert {f"table.{suffix}" for suffix in ("md", "tex", "csv")} <= {path.name for path in folder.iterdir()}
        assert outcome.pictures and outcome.seen and all(table(study, name))
        for picture in outcome.pictures:
            assert (folder / f"{picture.name}.png").read_bytes().startswith(b"\x89PNG")
            assert "<svg" in (folder / f"{picture.name}.svg").read_text()
    assert sorted(path.name for path in (study.out / "runs").iterdir()) == ["dsph-16-0", "kdph-16-0"]  # shared by all


def test_figures_agree_with_the_runs_own(study, outcomes):
    """The collapse table's groups make up the runs' mAP; a separation is the difference of its parts."""
    rows = table(study, "collapse")
    for title in ("DSPH", "KDPH"):
        metrics = read_json(study.out / "runs" / f"{title.lower()}-16-0" / "metrics.json")
        whole = np.average([float(r[f"mAP {title}"]) for r in rows], weights=[int(r["Queries"]) for r in rows])
        assert whole == pytest.approx((metrics["i2t"]["map"] + metrics["t2i"]["map"]) / 2, abs=1e-5)
    groups = table(study, "topology")
    assert [row["Group"] for row in groups] == ["even", "odd", "mean"]
    for row in groups:
        gap = float(row["Intra KDPH"]) - float(row["Inter KDPH"])
        assert float(row["Separation KDPH"]) == pytest.approx(gap, abs=2e-6)


def test_what_is_finished_is_kept(study, outcomes):
    models = sorted(study.out.glob("runs/*/model/model.safetensors"))
    before = [model.stat().st_mtime_ns for model in models]
    again = Study(study.data, study.out, study.bits, study.seeds, study.epochs)
    assert reproduce(again, "gtsd")[0].seen == outcomes["gtsd"].seen
    assert [model.stat().st_mtime_ns for model in models] == before
    with pytest.raises(UsageError, match="made with other settings"):
        reproduce(Study(study.data, study.out, study.bits, 1, epochs=3), "gtsd")


def test_ablation_leaves_out_what_its_marks_say():
    changed = {"Kent": "proxy", "L_Reg": "epsilon", "L_CM": "zeta", "L_U": "eta"}
    full = make_recipe({"method": "kdph"}).settings
    for name, _, marks in VARIANTS:
        settings = make_recipe(layer_of(name)).settings
        for setting, mark in zip(changed.values(), marks, strict=True):
            kept = {"": "point" if setting == "proxy" else 0.0, "β = 0": "vmf"}.get(mark, full[setting])
            assert settings[setting] == kept, (name, setting)
        others = set(settings) - set(changed.values())
        assert all(settings[setting] == full[setting] for setting in others)


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.tags = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "data", "action", "poster"):
                self.links.append(value)
            elif name == "id":
                self.ids.add(value)


def test_the_report_needs_nothing_from_elsewhere(study, outcomes):
    text = render(study, list(outcomes.values()))
    page = Page(text)
    assert {f"#{name}" for name in outcomes} <= set(page.links) and set(outcomes) <= page.ids
    pictures = [link for link in page.links if link.startswith("data:image/svg+xml;base64,")]
    assert len(pictures) == sum(len(outcome.pictures) for outcome in outcomes.values())
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in page.links)
    for picture in pictures:
        drawing = base64.b64decode(picture.partition(",")[2]).decode()
        assert Page(drawing).tags.count("svg") == 1
        assert all(link.startswith(("#", "data:image/png;base64,")) for link in Page(drawing).links)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style and "script" not in page.tags and "link" not in page.tags
    for name, outcome in outcomes.items():
        assert study.command(name) in text and outcome.title.replace("'", "’") in text


def test_recording_changes_nothing(pack, tmp_path):
    recipe = make_recipe({"data": str(pack), "method": "kdph", "bits": 16, "epochs": 2})
    for name in ("plain", "recorded"):
        train_run(recipe, tmp_path / name, quiet=True, record=name == "recorded")
    model = "model/model.safetensors"
    assert (tmp_path / "plain" / model).read_bytes() == (tmp_path / "recorded" / model).read_bytes()
    assert not has_record(tmp_path / "plain")
    record = read_record(tmp_path / "recorded", epochs=2)
    assert record.paths.shape == (12, 3, 16) and record.epochs[0].image.shape == (
        len(record.train) + len(record.validation),
        16,
    )
    assert np.linalg.norm(record.paths, axis=2) == pytest.approx(1, abs=1e-5)
    last = record.epochs[-1]
    assert last.frames[..., 0] == pytest.approx(last.means, abs=1e-3)
    with pytest.raises(DataError, match="was not recorded"):
        read_record(tmp_path / "plain", epochs=2)
    with pytest.raises(UsageError, match="has no proxies"):
        train_run(make_recipe({"data": str(pack), "method": "dchmt"}), tmp_path / "none", quiet=True, record=True)


def test_analyze_gives_the_measures_of_one_run(study, outcomes, tmp_path):
    run = study.out / "runs" / "kdph-16-0"
    printed = subprocess.run(
        [sys.executable, "-m", "kenthash", "analyze", run, "--json"], capture_output=True, text=True
    )
    result = json.loads(printed.stdout)
    assert result["method"] == "kdph" and len(result["classes"]) == 12
    assert set(result["flip_rate_by_epoch"]) == {"2"} and set(result["groups"]) == {"even", "odd"}
    row = table(study, "chaos")[-1]
    assert result["chaos"]["index"] == pytest.approx(float(row["Chaos Index"]), abs=1e-5)
    assert "| class 11 |" in as_text(result)
    plain = shutil.copytree(run, tmp_path / "plain", ignore=shutil.ignore_patterns("proxies", "checkpoint"))
    less = analyse(plain)  # neither recorded nor with a checkpoint: its codes are all there is
    assert less["map_by_labels"] == result["map_by_labels"] and not {"chaos", "gtsd_by_labels", "groups"} & set(less)
    assert "no record of its epochs" in as_text(less)
    with pytest.raises(DataError, match="not a run"):
        analyse(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"], "must be a JSON object"),
        ({"a": ["class 0"], "b": []}, "must be a JSON object"),
        ({"a": ["class 0"], "b": ["class 99"]}, "'class 99' of group 'b' is no class"),
        ({"a": ["class 0"], "b": ["class 0"]}, "is in 'a' and in 'b'"),
        ({"a": ["class 0"]}, "has 1 groups"),
    ],
)
def test_group_files_that_are_refused(tmp_path, groups, message):
    path = tmp_path / "groups.json"
    path.write_text(json.dumps(groups))
    with pytest.raises(DataError, match=message):
        read_groups(path, ["class 0", "class 1"])


def test_misuse_is_named(tmp_path):
    plain = Study(write_pack(tmp_path / "pack", items=60), tmp_path / "out", bits=(16,), seeds=1, epochs=2)
    with pytest.raises(UsageError, match="no target 'best': choose from table1"):
        reproduce(plain, "best")
    with pytest.raises(UsageError, match="give --groups FILE"):
        reproduce(plain, "topology")
    with pytest.raises(UsageError, match="at least 2"):
        reproduce(Study(plain.data, plain.out, (16,), 1, epochs=1), "chaos")


def test_a_sheet_in_all_its_forms():
    sheet = Sheet(["Name", "Δ"], [["a_b", 0.12345], ["**best**", float("nan")]], "of <it>", digits=2)
    assert sheet.markdown().splitlines()[:4] == ["| Name | Δ |", "|---|---:|", "| a_b | 0.12 |", "| **best** | – |"]
    assert r"a\_b & 0.12 \\" in sheet.latex() and r"\textbf{best} & -- \\" in sheet.latex()
    assert sheet.comma_separated() == "Name,Δ\na_b,0.123450\nbest,\n"
    assert "<strong>best</strong>" in sheet.html() and "of &lt;it&gt;" in sheet.html()
    assert parse_markdown(sheet.markdown(), "").rows == [["a_b", "0.12"], ["**best**", "–"]]


def test_grid_and_kinds():
    assert grid(64)["axes"] == (4, 8, 16, 32) and grid(8)["axes"] == (1, 2, 4)
    labels = np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0]], np.uint8)
    assert kinds_of(labels, np.array([0, 1])).tolist() == [1, -1, -1]


def test_every_cause_differs_from_the_variant_it_is_measured_against():
    tried = {variant.name: make_recipe(variant.layer) for variant in variants()}
    assert len(tried) == len(variants())
    assert len({str(recipe) for recipe in tried.values()}) == len(tried)
    assert all(variant.against in tried for variant in variants() if variant.against)
