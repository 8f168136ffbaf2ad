"""What targets are made of: recipes, records, group files, tables; and data that has nothing for some of them."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from kenthash.analysis.topology import read_groups
from kenthash.errors import DataError, UsageError
from kenthash.studies.analyze import analyse
from kenthash.studies.outcome import LeftOut, signed
from kenthash.studies.reproduce import reproduce
from kenthash.studies.sheet import Sheet
from kenthash.studies.study import Study
from kenthash.studies.targets.ablation import VARIANTS, layer_of
from kenthash.studies.targets.causes import variants
from kenthash.studies.targets.sensitivity import grid
from kenthash.studies.targets.tsne import kinds_of
from kenthash.training.proxy_record import has_record, read_record
from kenthash.training.recipe import make_recipe
from kenthash.training.train import train_run
from packs import write_pack


def test_ablation_leaves_out_what_its_marks_say() -> None:
    changed = {"Kent": "proxy", "L_Reg": "epsilon", "L_CM": "zeta", "L_U": "eta"}
    full = make_recipe({"method": "kdph"}).settings
    for name, _, marks in VARIANTS:
        settings = make_recipe(layer_of(name)).settings
        for setting, mark in zip(changed.values(), marks, strict=True):
            value = {"": "point" if setting == "proxy" else 0.0, "β = 0": "vmf"}.get(mark, full[setting])
            assert settings[setting] == value, (name, setting)
        others = set(settings) - set(changed.values())
        assert all(settings[setting] == full[setting] for setting in others)


def test_recording_changes_nothing(tmp_path: Path) -> None:
    pack = write_pack(tmp_path / "pack")
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
    assert last.frames is not None and last.frames[..., 0] == pytest.approx(last.means, abs=1e-3)
    with pytest.raises(DataError, match="was not recorded"):
        read_record(tmp_path / "plain", epochs=2)
    with pytest.raises(UsageError, match="has no proxies"):
        train_run(make_recipe({"data": str(pack), "method": "dchmt"}), tmp_path / "none", quiet=True, record=True)


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
def test_group_files_that_are_refused(tmp_path: Path, groups: object, message: str) -> None:
    path = tmp_path / "groups.json"
    path.write_text(json.dumps(groups))
    with pytest.raises(DataError, match=message):
        read_groups(path, ["class 0", "class 1"])


def test_misuse_is_named(tmp_path: Path) -> None:
    plain = Study(write_pack(tmp_path / "pack", items=200), tmp_path / "out", bits=(16,), seeds=1, epochs=2)
    with pytest.raises(UsageError, match="no target 'best': choose from table1"):
        reproduce(plain, "best")
    with pytest.raises(UsageError, match="give --groups FILE"):
        reproduce(plain, "topology")
    with pytest.raises(UsageError, match="at least 2"):
        reproduce(Study(plain.data, plain.out, (16,), 1, epochs=1), "chaos")
    alone = tmp_path / "groups of one.json"
    alone.write_text(json.dumps({f"group {c}": [f"class {c}"] for c in range(12)}))
    single = Study(plain.data, plain.out, (16,), 1, epochs=2, groups_file=alone)
    with pytest.raises(LeftOut, match="a group of two classes"):
        reproduce(single, "topology")
    assert shlex.split(single.command("topology"))[-2:] == ["--groups", str(alone)]  # a path with spaces


def test_data_with_one_label_an_item(tmp_path: Path) -> None:
    """Nothing co-occurs: what can be measured is, without a crash or a "nan", and the rest says that it cannot."""
    pack = write_pack(tmp_path / "pack", items=200)
    labels = np.zeros((200, 12), np.uint8)
    labels[np.arange(200), np.arange(200) % 12] = 1
    np.save(pack / "labels.npy", labels)
    study = Study(pack, tmp_path / "out", bits=(16,), seeds=1, epochs=2)
    for target in ("trajectories", "chaos", "collapse"):
        outcome = reproduce(study, target)[0]
        assert outcome.plots and "nan" not in outcome.text(), target
    with pytest.raises(LeftOut, match="has 3 to 8 labels"):
        reproduce(study, "gtsd")
    with pytest.raises(LeftOut, match="no class ever comes with"):
        reproduce(study, "tsne")
    lines = analyse(study.out / "runs" / "kdph-16-0")["left_out"]
    assert [line.partition(" is left out")[0] for line in lines] == ["GTSD", "topology"]


def test_a_sheet_in_all_its_forms() -> None:
    sheet = Sheet(["Name", "Δ"], [["a_b", 0.12345], ["**best**", float("nan")]], "of <it>", digits=2)
    assert sheet.markdown().splitlines()[:4] == ["| Name | Δ |", "|---|---:|", "| a_b | 0.12 |", "| **best** | – |"]
    assert r"a\_b & 0.12 \\" in sheet.latex() and r"\textbf{best} & -- \\" in sheet.latex()
    assert sheet.comma_separated() == "Name,Δ\na_b,0.123450\nbest,\n"
    assert "<strong>best</strong>" in sheet.html() and "of &lt;it&gt;" in sheet.html()
    odd = Sheet(["Name"], [["a|b"], ["c\\d^e{f}"]], "")
    assert r"| a\|b |" in odd.markdown()
    assert r"c\textbackslash{}d\textasciicircum{}e\{f\}" in odd.latex()
    assert (signed(-0.5, 1), signed(float("nan"))) == ("−0.5", "–")


def test_grid_and_kinds() -> None:
    assert grid(64)["axes"] == (4, 8, 16, 32, 63) and grid(8)["axes"] == (1, 2, 4, 7)
    labels = np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0]], np.uint8)
    assert kinds_of(labels, np.array([0, 1])).tolist() == [1, -1, -1]


def test_every_cause_differs_from_the_variant_it_is_measured_against() -> None:
    tried = {variant.name: make_recipe(variant.layer) for variant in variants()}
    assert len(tried) == len(variants())
    assert len({str(recipe) for recipe in tried.values()}) == len(tried)
    assert all(variant.against in tried for variant in variants() if variant.against)
