"""Comparisons: controls, tables, winners, and the whole command on a small pack."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from components import need
from kenthash.data.pack import FeaturePack
from kenthash.data.splits import make_split
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.evaluation.real_valued import real_valued_map
from kenthash.files import read_json
from kenthash.methods.kdph import Kdph
from kenthash.studies.compare import Comparison, compare, parse_bits, parse_methods
from kenthash.studies.controls import CONTROLS, NEED_FAISS, Side, side_of
from kenthash.studies.results import Cell, Row, basis_of_test, cells_of, winners, with_mean
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.tables import draw_figure, latex, sheet_of
from kenthash.studies.tuning import propose, tuned_layers
from kenthash.training.recipe import make_recipe
from packs import write_pack
from processes import run_here


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pack(tmp_path_factory.mktemp("data") / "pack", items=600, noise=0.3)


@pytest.mark.parametrize("name", CONTROLS)
def test_every_control_finds_more_than_chance(pack: Path, name: str) -> None:
    if name in NEED_FAISS:
        need("faiss")
    features = FeaturePack.open(pack)
    split = make_split(len(features), seed=0)
    labels = features.dataset.labels[split.query], features.dataset.labels[split.database]
    chance = float(np.mean(labels[0].astype(int) @ labels[1].T.astype(int) > 0))
    apply = CONTROLS[name](side_of(features, split.train), 16, 0)
    query, database = apply(side_of(features, split.query)).queries, apply(side_of(features, split.database)).items
    assert real_valued_map(query.image, database.text, *labels) > chance + 0.1
    assert real_valued_map(query.text, database.image, *labels) > chance + 0.1


def test_rabitq_ranks_by_the_estimates_of_the_library() -> None:
    """What is compared gives, of one query, the inner products that the library's own index estimates, less a constant;
    and cosines rank as these do."""
    need("faiss")
    import faiss

    vectors = np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32) + 0.3
    side = Side(vectors, vectors)
    ranked = CONTROLS["rabitq"](side, 16, 0)(side)
    queries, items = ranked.queries.text, ranked.items.text
    turned = np.ascontiguousarray(queries[:, :16])
    unit = vectors - vectors.mean(axis=0)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    np.testing.assert_allclose(turned @ turned.T, unit @ unit.T, atol=1e-4)  # it is only turned
    index = faiss.IndexRaBitQ(16, faiss.METRIC_INNER_PRODUCT)
    index.train(np.concatenate([np.ascontiguousarray(ranked.queries.image[:, :16]), turned]))
    index.add(turned)
    index.qb = 0  # queries are not rounded
    values, order = index.search(turned, 300)
    estimates = np.zeros((300, 300), np.float32)
    np.put_along_axis(estimates, order, values, axis=1)
    difference = estimates - queries @ items.T
    np.testing.assert_allclose(difference, np.repeat(difference[:, :1], 300, axis=1), atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(items, axis=1), np.linalg.norm(items[0]), rtol=1e-5)


def test_only_a_clear_winner_is_bold() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(200)
    cell = {"good": base + 0.1, "same": base + 0.1 + rng.normal(0, 1e-4, 200), "poor": base}
    cells = {name: Cell((float(ap.mean()),), ap=ap) for name, ap in cell.items()}
    rows = {name: Row(name, "2026", "paper", {("i2t", 16): c, ("t2i", 16): c}) for name, c in cells.items()}
    both = [rows["good"], rows["poor"]]
    won = {("i2t", 16): "good", ("t2i", 16): "good"}
    assert winners(both) == won
    assert winners(list(rows.values())) == {}  # two that tie
    assert winners([rows["good"]]) == {}  # ahead of nothing
    real = Row("cosine", "", "control", {column: Cell((1.0,), (1.0,)) for column in won})
    assert winners([real, *both]) == won  # real values are no codes
    table = sheet_of(both, [16], won, "").markdown()
    assert f"**{base.mean() + 0.1:.4f}**" in table and f"**{base.mean():.4f}**" not in table
    odd = Row("a_b & c", "50 %", "paper", rows["good"].cells)
    assert r"a\_b \& c & 50 \%" in latex([odd], [16], {})


def test_bold_is_over_seeds_where_these_are_enough_and_else_of_these_models() -> None:
    rng = np.random.default_rng(0)

    def row(name: str, lead: float, seeds: int) -> Row:
        """Ahead by `lead` on every query of the first seed, behind by as much on the others."""
        maps = [0.5 + (lead if seed == 0 else -lead / 20) for seed in range(seeds)]
        ap = np.concatenate([rng.normal(m, 1e-3, 400) for m in maps])
        return Row(name, "", "paper", {("i2t", 16): Cell(tuple(maps), ap=ap)})

    many = [row("lucky", 0.1, 10), row("base", 0.0, 10)]  # one lucky seed of ten: pooled queries call it significant
    assert many[0].cells["i2t", 16].mean > many[1].cells["i2t", 16].mean
    assert winners(many) == {} and "over 10 seeds" in basis_of_test(many)
    few = [row("lucky", 0.1, 2), row("base", 0.0, 2)]
    assert winners(few) == {("i2t", 16): "lucky"} and basis_of_test(few).startswith("these models")


def test_a_method_is_tuned_over_its_own_ranges() -> None:
    tried = propose("kdph", 16, {}, 40)[1:]
    assert {layer["settings"]["margin_bits"] for layer in tried} == set(Kdph.ranges["settings.margin_bits"])
    assert {layer["settings"]["concentration"] for layer in tried} == set(Kdph.ranges["settings.concentration"])
    assert {layer["batch"] for layer in propose("dsph", 16, {"batch": 128}, 40)[1:]} == {64, 128}
    for layer in tried:
        make_recipe({**layer, "method": "kdph"})


def test_proposals_begin_with_the_defaults_and_repeat() -> None:
    first, *others = propose("kdph", 16, {"epochs": 3}, 4)
    assert first == {"epochs": 3} and len(others) == 3
    assert propose("kdph", 16, {"epochs": 3}, 4)[1:] == others
    assert len({layer["settings"]["epsilon"] for layer in others} | {40.0}) > 1


def test_unknown_methods_are_named() -> None:
    assert parse_methods("kdph, pq,kdph") == ("kdph", "pq")
    with pytest.raises(UsageError, match="--methods best: choose from kcph, kaph"):
        parse_methods("best")
    assert parse_bits("64,16,64") == (64, 16)  # a length that is given twice is made once
    for bits in ("16,", "many", "12"):
        with pytest.raises(UsageError, match="code length"):
            parse_bits(bits)


def test_all_is_what_can_be_made_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)  # as if it were not installed
    names = set(parse_methods("all"))
    assert {"kdph", "cca-itq"} < names and not {"pq", "rabitq"} & names
    assert capsys.readouterr().err.startswith("pq, rabitq: left out: they need faiss: pip install")


def test_settings_are_those_of_the_compared_methods(pack: Path, tmp_path: Path) -> None:
    """Not of the default method; and what one of them does not have is refused before anything is trained."""
    layer = {"settings": {"epsilon": 1.0}}
    assert compare(Comparison(pack, tmp_path / "a", ("lsh",), (16,), 1, layer)).rows[0][1] == "lsh"
    with pytest.raises(UsageError, match="epsilon"):
        compare(Comparison(pack, tmp_path / "b", ("dsph",), (16,), 1, layer))
    assert not (tmp_path / "b" / "runs").exists()
    with pytest.raises(UsageError, match="--set bits"):
        compare(Comparison(pack, tmp_path / "c", ("lsh",), (16,), 1, {"bits": 32}))


def test_figures_of_controls_are_kept(tmp_path: Path) -> None:
    """Of the seeds and lengths that are there already, for the same vectors."""
    data, out = write_pack(tmp_path / "pack", items=200), tmp_path / "out"

    def figures(seeds: int, *bits: int) -> list[float]:
        compare(Comparison(data, out, ("cosine",), bits, seeds, {}))
        return [
            value
            for sides in read_json(out / "controls.json")["controls"]["cosine"].values()
            for value in sides["i2t"]["map"]
        ]

    (measured,) = figures(1, 16)
    record = (out / "controls.json").read_text()
    (out / "controls.json").write_text(record.replace(str(measured), "0.123"))
    assert figures(1, 16) == [0.123] and "| 0.1230 |" in (out / "table.md").read_text()
    kept, *others = figures(2, 16, 32)
    assert kept == 0.123 and others[1] == measured and 0.123 not in others
    np.save(data / "image.npy", np.load(data / "image.npy") * 2)
    assert figures(1, 16) == [pytest.approx(measured, abs=1e-4)]


def test_a_vector_that_is_no_number_is_named_by_its_row(tmp_path: Path) -> None:
    folder = write_pack(tmp_path / "pack")
    image = np.load(folder / "image.npy")
    image[7] = np.nan
    np.save(folder / "image.npy", image)
    with pytest.raises(DataError, match=r"image.npy: row 7 holds NaN"):
        compare(Comparison(folder, tmp_path / "out", ("cosine",), (16,), 1, {}))


def test_runs_that_cannot_stand_in_the_table(tmp_path: Path) -> None:
    (tmp_path / "per_query_ap.npz").write_bytes(b"PK broken")
    directions = {name: {"map": 0.5} for name in ("i2t", "t2i")}
    for ties, message in (("optimistic", "evaluated with optimistic ties"), ("expected", "not the scores of a run")):
        metrics = {**directions, "real_valued_map": {"i2t": 0.6, "t2i": 0.6}, "ties": ties}
        (tmp_path / "metrics.json").write_text(json.dumps(metrics))
        with pytest.raises(DataError, match=message):
            cells_of({16: [tmp_path]})


def test_the_command_writes_resumes_and_adds(pack: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--data", str(pack), "--bits", "16", "--seeds", "1", "--set", "epochs=2", "--out", str(out)]

    def compare(methods: str, *more: str) -> subprocess.CompletedProcess[str]:
        return run_here("compare", *options, "--methods", methods, *more)

    assert compare("dsph").returncode == 0
    model = out / "runs" / "dsph-16-0" / "model" / "model.safetensors"
    before = model.stat().st_mtime_ns
    printed = compare("dsph,lsh,kdph").stdout
    assert model.stat().st_mtime_ns == before  # kept, not made again
    assert "| I2T | KDPH |" in printed and "| T2I | lsh |" in printed
    with (out / "table.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 9 and all(0 < float(row["map_mean"]) < 1 for row in rows)
    assert {path.name for path in out.iterdir()} >= {"table.md", "table.tex", "figure.png", "figure.svg"}
    result = json.loads(compare("dsph,lsh,kdph", "--json").stdout)
    assert {Path(path).name for path in result["written"]} >= {"table.csv", "table.md", "figure.svg"}
    assert [row["Method"] for row in result["tables"][0]["rows"]] == ["lsh", "DSPH", "KDPH"] * 3
    refused = compare("dsph", "--set", "batch=64")
    assert refused.returncode == 2 and "made with other settings (batch)" in refused.stderr


def test_own_pairs_stand_beside_shared_labels(tmp_path: Path) -> None:
    runs = [tmp_path / "0", tmp_path / "1"]
    for run, recall in zip(runs, (0.5, 0.6), strict=True):
        run.mkdir()
        figures = {"map": 0.7, "instance_recall": {"1": 0.1, "5": 0.4, "10": recall}}
        metrics = {"i2t": figures, "t2i": figures, "real_valued_map": {"i2t": 0.8, "t2i": 0.8}, "ties": "expected"}
        (run / "metrics.json").write_text(json.dumps(metrics))
        scores = np.array([0.6, np.nan, 0.8])  # nothing is relevant to the second query, as to one without labels
        np.savez(run / "per_query_ap.npz", i2t=scores, t2i=scores)
    row = Row("DSPH", "2023", "code", cells_of({16: runs}))
    older = Row("old", "", "code", {column: Cell((0.5,)) for column in row.cells})  # of a version without own pairs
    sheet = sheet_of([row, older], [16], {}, "")
    assert sheet.head[4:] == ["16 bits", "16 real", "16 R@10"]
    assert [line[4:] for line in sheet.rows[:2]] == [["0.7000 ± 0.0000", "0.8000", "55.0 ± 7.1"], ["0.5000", "–", "–"]]
    assert [[*line[:2], *line[4:]] for line in sheet.rows[4:]] == [
        ["Mean", "DSPH", "0.7000 ± 0.0000", "0.8000", "55.0 ± 7.1"],
        ["Mean", "old", "0.5000", "–", "–"],
    ]
    assert "16 bits & 16 R@10" in latex([row], [16], {}) and r"55.0 $\pm$ 7.1" in latex([row], [16], {})
    assert [axes.get_ylabel() for axes in draw_figure([row], [16]).axes] == ["mAP", "", "own pairs, R@10 (%)", ""]


def test_the_mean_of_both_directions_is_of_each_seed() -> None:
    """So that its deviation is that over seeds."""
    cells = {
        ("i2t", 16): Cell((0.6, 0.8), recalls={10: (0.2, 0.4)}),
        ("t2i", 16): Cell((0.8, 0.6), recalls={10: (0.4, 0.2)}),
        ("i2t", 32): Cell((0.5,)),  # the other direction is missing
    }
    both = with_mean(cells)
    assert both["mean", 16].text() == "0.7000 ± 0.0000" and both["mean", 16].recall_text(10) == "30.0 ± 0.0"
    assert ("mean", 32) not in both


def test_short_texts_that_are_not_learned_from_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs of a comparison are quiet: it says itself what the pack does not, and what to do."""
    data = write_pack(tmp_path / "pack", items=100)
    compare(Comparison(data, tmp_path / "out", ("kcph",), (16,), 1, {"epochs": 1}))
    printed = capsys.readouterr().err
    assert printed.count("KCPH: short texts are not learned from: the pack does not say which encoder") == 1
    assert (
        "`encoder` in its meta.json, or give that of its texts by --set encoder.spec=NAME, for example clip" in printed
    )


def test_without_labels_the_table_is_of_own_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_pack(tmp_path / "pack", items=200)
    names, layer = ("dsph", "ucmfh", "lsh", "cosine"), {"epochs": 1, "batch": 32}
    np.save(folder / "labels.npy", np.zeros((200, 0), np.uint8))
    (folder / "meta.json").write_text('{"name": "bare", "classes": []}')
    sheet = compare(Comparison(folder, tmp_path / "bare", names, (16,), 1, layer))
    printed = capsys.readouterr().err
    assert printed == "dsph: left out: they need labels, and its items have no labels\n"
    assert sheet.head[4:] == ["16 R@10"] and methods_of(sheet) == {"UCMFH", "lsh", "cosine"}
    assert all(float(str(row[4])) > 0 for row in sheet.rows) and "Bold" not in sheet.caption
    assert "Figures by shared labels are left out: its items have no labels." in sheet.caption
    with (tmp_path / "bare" / "table.csv").open() as stream:
        assert {(row["map_mean"], row["maps"]) for row in csv.DictReader(stream)} == {("", "")}
    with pytest.raises(
        UsageError, match="all of them need labels, and its items have no labels: choose from kcph, ucch, ucmfh"
    ):
        compare(Comparison(folder, tmp_path / "none", ("dsph",), (16,), 1, layer))


def methods_of(sheet: Sheet) -> set[Value]:
    return {row[1] for row in sheet.rows}


def test_a_table_keeps_the_rows_of_earlier_commands(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = {"epochs": 1, "optimizer": {"lr": 0.01}}
    first = compare(Comparison(pack, tmp_path, ("dsph", "lsh"), (16,), 1, layer))
    assert methods_of(first) == {"DSPH", "lsh"} and "Bold" in first.caption
    assert "Set for all: epochs=1, optimizer.lr=0.01." in first.caption
    second = compare(Comparison(pack, tmp_path, ("cosine",), (16,), 1, layer))
    assert methods_of(second) == {"DSPH", "lsh", "cosine"}
    assert [row for row in second.rows if row[1] != "cosine"] == first.rows
    assert "left out" not in capsys.readouterr().err
    for bits, changed, reason in (
        ((16,), layer | {"epochs": 2}, "was made with other settings (epochs)"),
        ((16, 32), layer, "dsph-32-0 has not been made: name dsph in --methods"),
    ):
        third = compare(Comparison(pack, tmp_path, ("sign", "lsh"), bits, 1, changed))
        assert methods_of(third) == {"lsh", "cosine", "sign"}
        printed = capsys.readouterr().err
        assert printed.startswith("DSPH is left out of the table: ") and reason in printed and printed.count("\n") == 1
    alone = compare(Comparison(pack, tmp_path / "alone", ("lsh",), (16,), 1, {}))
    assert "Bold" not in alone.caption and "Set for all" not in alone.caption and "**" not in alone.markdown()


def test_a_table_keeps_tuned_rows_that_were_tuned_alike(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = {"epochs": 1}
    compare(Comparison(pack, tmp_path, ("dsph",), (16,), 1, layer, tune=2))
    assert methods_of(compare(Comparison(pack, tmp_path, ("lsh",), (16,), 1, layer, tune=2))) == {"DSPH", "lsh"}
    assert capsys.readouterr().err == ""
    assert methods_of(compare(Comparison(pack, tmp_path, ("lsh",), (16,), 1, layer, tune=3))) == {"lsh"}
    assert "DSPH is left out of the table: it was not tuned by 3 tries" in capsys.readouterr().err


def test_tuning_keeps_the_best_on_validation(pack: Path, tmp_path: Path) -> None:
    layer = {"epochs": 2, "batch": 64}
    chosen = tuned_layers(tmp_path, pack, ["dsph"], 16, layer, tries=2)["dsph"]
    record = read_json(tmp_path / "dsph-16.json")
    assert record["best"] == int(np.argmax(record["scores"])) and record["layer"] == chosen
    assert not list(tmp_path.glob("*/metrics.json"))  # the query set was never asked


def test_a_setting_that_fails_has_lost(pack: Path, tmp_path: Path) -> None:
    for try_ in ("dsph-16-0", "dchmt-16-0"):
        (tmp_path / try_).mkdir()
        (tmp_path / try_ / "in the way").touch()  # not a run: training into it is refused
    layer = {"epochs": 2, "batch": 64}
    chosen = tuned_layers(tmp_path, pack, ["dsph"], 16, layer, tries=2)["dsph"]
    record = read_json(tmp_path / "dsph-16.json")
    assert record["scores"][0] is None and record["best"] == 1
    assert chosen == propose("dsph", 16, layer, 2)[1]
    with pytest.raises(KenthashError, match="dchmt: all 1 settings that were tried failed"):
        tuned_layers(tmp_path, pack, ["dchmt"], 16, layer, tries=1)


def test_product_quantisation_of_a_few_items() -> None:
    """Fewer training vectors than the 256 centroids of a byte."""
    need("faiss")
    rng = np.random.default_rng(0)
    side = Side(rng.standard_normal((40, 8), np.float32), rng.standard_normal((40, 8), np.float32))
    ranked = CONTROLS["pq"](side, 16, 0)(side)
    query, item = ranked.queries.text, ranked.items.text
    assert query.shape == item.shape
    assert np.square(query - item).mean() < np.square(query).mean()
