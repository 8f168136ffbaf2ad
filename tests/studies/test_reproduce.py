"""All targets of `kenthash reproduce` on a small pack, end to end, and what they must agree with."""

import base64
import contextlib
import csv
import io
import json
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from kenthash.analysis import class_models
from kenthash.analysis.class_models import class_ranking, class_scores
from kenthash.codes import pack as codes_of
from kenthash.errors import DataError, UsageError
from kenthash.files import read_json
from kenthash.methods import METHODS
from kenthash.studies.analyze import analyse, as_text
from kenthash.studies.controls import CONTROLS
from kenthash.studies.quantisers import QUANTISERS
from kenthash.studies.reproduce import reproduce
from kenthash.studies.study import Study
from kenthash.studies.targets import TARGETS
from kenthash.studies.targets.ablation import VARIANTS
from kenthash.studies.targets.bytes import FLOATS
from kenthash.studies.targets.causes import variants
from kenthash.training.run_folder import Run
from packs import write_pack
from processes import run_here

BITS = 16
# A study's folder is reused by later versions: runs keep their names.
CAUSES = [
    *("kdph-authors", "kdph-printed", "kdph-printed-mean", "kdph-printed-threshold", "kdph-printed-rate", "kdph"),
    *("kdph-constant", "kdph-multi-label", "kdph-no-proxies", "kdph-no-irrelevance", "kdph-no-alignment"),
    *("kdph-no-uniform", "kdph-vmf", "kdph-point", "kdph-wide", "kdph-hinge", "kaph-proxies", "kaph-no-proxies"),
    *("kaph", "kaph-across", "kaph-flat", "kaph-plain", "kaph-vmf", "kaph-point", "kdph-printed-on-queries"),
]
ABLATION = ["kdph-point", "kdph-vmf", "kdph-no-irrelevance", "kdph-no-alignment", "kdph-no-uniform", "kdph"]
SETTINGS = {
    "ε": {"1": "kdph-epsilon-1", "10": "kdph-epsilon-10", "40": "kdph", "100": "kdph-epsilon-100"},
    "η": {"0.01": "kdph-eta-0.01", "0.1": "kdph", "0.5": "kdph-eta-0.5", "1": "kdph-eta-1"},
    "ζ": {"0.1": "kdph-zeta-0.1", "0.3": "kdph", "0.6": "kdph-zeta-0.6", "1": "kdph-zeta-1"},
    "N_axes": {"1": "kdph-axes-1", "2": "kdph", "4": "kdph-axes-4", "8": "kdph-axes-8", "15": "kdph-axes-15"},
    "m": {v: "kdph" if v == "32" else f"kdph-margin_bits-{v}" for v in ("1", "8", "16", "32", "64")},
    "κ₀": {v: "kdph" if v == "8" else f"kdph-concentration-{v}" for v in ("1", "4", "8", "16")},
}
CONFLICTS = [
    f"kdph{kind}{condition}-{BITS}-0"
    for kind in ("", "-vmf", "-matched", "-point")
    for condition in ("", "-few10", "-few10-noise0.4")
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_models, "STEPS", 50)  # of each fit of `shape`: enough for what is compared here
        yield Study(write_pack(folder / "pack", items=300), folder / "out", bits=(BITS,), seeds=1, epochs=2)


@pytest.fixture(scope="module")
def messages(study: Study) -> str:
    """Make everything; what was told on standard error."""
    with contextlib.redirect_stderr(io.StringIO()) as stream:
        outcomes = reproduce(study, "all")
    assert [outcome.target for outcome in outcomes] == [name for name in TARGETS if name != "topology"]
    assert all(outcome.seen for outcome in outcomes)
    return stream.getvalue()


@pytest.fixture(scope="module")
def grouped(study: Study, messages: str) -> Study:
    """The same study when its classes have groups."""
    groups = {"even": [f"class {c}" for c in range(0, 12, 2)], "odd": [f"class {c}" for c in range(1, 12, 2)]}
    (study.data / "groups.json").write_text(json.dumps(groups))
    return Study(study.data, study.out, study.bits, study.seeds, study.epochs)


def table(study: Study, target: str, name: str = "table") -> list[dict[str, str]]:
    with (study.out / target / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def metrics(study: Study, name: str) -> list[float]:
    """(i2t, t2i, i2t real, t2i real) of a run."""
    bits = 24 if name == "sign" else BITS  # as many as the text tower has dimensions
    values = read_json(study.out / "runs" / f"{name}-{bits}-0" / "metrics.json")
    return [values[d]["map"] for d in ("i2t", "t2i")] + [values["real_valued_map"][d] for d in ("i2t", "t2i")]


def test_all_targets_write_tables_and_pictures(study: Study, messages: str) -> None:
    assert "topology is left out: groups of classes are needed: give --groups FILE" in messages
    report = (study.out / "report.html").read_text()
    assert 'id="topology"' not in report
    for name in set(TARGETS) - {"topology"}:
        folder = study.out / name
        rows = table(study, name)
        assert rows and f'id="{name}"' in report
        assert (folder / "table.md").read_text().count("\n|") >= min(len(rows), 2)
        assert (folder / "table.tex").read_text().endswith("\\bottomrule\n\\end{tabular}\n")
        pictures = sorted(folder.glob("figure*.png"))
        assert pictures, name
        for picture in pictures:
            assert picture.read_bytes().startswith(b"\x89PNG") and "<svg" in picture.with_suffix(".svg").read_text()


def test_bytes_are_measured_once(study: Study, messages: str) -> None:
    """After a stop, or with more lengths, what was measured of a contender is read again, and the rest is measured."""
    (kept,) = study.out.glob("runs/bytes-captions-codes-*/contenders.json")
    stored = read_json(kept)
    stored["known"][f"codes, {BITS // 8} bytes"][0] = 0.123
    missing = stored["known"].pop(f"codes, real query, {BITS // 8} bytes")
    kept.write_text(json.dumps(stored))
    reproduce(study, "bytes")
    assert "12.3" in table(study, "bytes")[0].values()
    assert read_json(kept)["known"][f"codes, real query, {BITS // 8} bytes"] == missing
    for path in study.out / "bytes" / "ridge-0.json", *study.out.glob("runs/bytes-*-floats-*/contenders.json"):
        assert read_json(path)["known"].keys() == {f"{name}, {BITS // 8} bytes" for name in QUANTISERS}


def test_runs_have_their_names(study: Study, messages: str) -> None:
    settings = [name for names in SETTINGS.values() for name in names.values()]
    names = {f"{name}-{BITS}-0" for name in (*METHODS, *ABLATION, *CAUSES, *settings, "dsph-wide", "dsph-tuned")}
    names |= set(CONFLICTS)
    names = names - {f"sign-{BITS}-0"} | {"sign-24-0"}
    kinds = (f"codes-{BITS}", f"floats-{FLOATS}")
    names |= {f"bytes-{supervision}-{kind}-0" for supervision in ("labels", "captions") for kind in kinds}
    assert {path.name for path in (study.out / "runs").iterdir()} == names


def test_table_1_has_every_method_and_control(study: Study, messages: str) -> None:
    rows = table(study, "table1")
    row_of = {(row["task"], row["method"]): row for row in rows}
    titles = {method.title: key for key, method in METHODS.items()}
    assert set(row_of) == {(task, name) for task in ("I2T", "T2I", "Mean") for name in (*titles, *CONTROLS)}
    assert len(rows) == len(row_of)
    for title, key in titles.items():
        i2t, t2i, real, _ = metrics(study, key)
        assert float(row_of["I2T", title]["map_mean"]) == pytest.approx(i2t, abs=1e-6)
        assert float(row_of["T2I", title]["map_mean"]) == pytest.approx(t2i, abs=1e-6)
        assert float(row_of["I2T", title]["real_mean"]) == pytest.approx(real, abs=1e-4)
    printed = (study.out / "table1" / "table.md").read_text().replace("**", "")
    assert f"| I2T | KDPH | IJCAI 2026 | paper | {metrics(study, 'kdph')[0]:.4f} |" in printed


def test_the_ablation_is_that_of_its_runs(study: Study, messages: str) -> None:
    rows = table(study, "ablation")
    assert [row["Variant"] for row in rows] == [title for _, title, _ in VARIANTS]
    for row, name in zip(rows, ABLATION, strict=True):
        figures = [float(row[column]) for column in ("I → T", "T → I", "I → T real", "T → I real")]
        assert figures == pytest.approx(metrics(study, name), abs=1e-4)


def test_the_sensitivity_is_that_of_its_runs(study: Study, messages: str) -> None:
    rows = table(study, "sensitivity")
    assert [(row["Setting"], row["Value"]) for row in rows] == [(s, v) for s, names in SETTINGS.items() for v in names]
    for row in rows:
        name = SETTINGS[row["Setting"]][row["Value"]]
        assert row[""] == ("default" if name == "kdph" else "")
        assert [float(row["I → T"]), float(row["T → I"])] == pytest.approx(metrics(study, name)[:2], abs=1e-6)


def test_the_leads_are_those_of_their_runs(study: Study, messages: str) -> None:
    """Of KDPH over DSPH with either head, and of the Kent shape under every condition."""
    runs = (("dsph", "dsph-tuned", "kdph"), ("dsph-wide", "dsph-wide", "kdph-wide"))
    for row, names in zip(table(study, "baseline"), runs, strict=True):
        maps = [float(np.mean(metrics(study, name)[:2])) for name in names]
        assert [float(row[column]) for column in ("DSPH", "DSPH tuned", "KDPH")] == pytest.approx(maps, abs=1e-6)
        for rival, own in zip(("DSPH", "DSPH tuned"), maps[:2], strict=True):
            assert float(row[f"Lead over {rival}"].replace("−", "-")) == pytest.approx(maps[2] - own, abs=1e-4)
            assert float(row[f"p, Holm, {rival}"]) == 1  # one seed tells nothing
    rows = {row["Condition"]: row for row in table(study, "conflicts")}
    assert len(rows) == len(CONFLICTS) / 4
    noisy = rows[f"{BITS} bits, 13 items, 40% noisy"]
    kent, vmf, point = (
        float(np.mean(metrics(study, f"{name}-few10-noise0.4")[:2])) for name in ("kdph", "kdph-vmf", "kdph-matched")
    )
    figures = [float(noisy[column]) for column in ("Kent", "vMF (β = 0)", "point, scale 2κ₀")]
    assert figures == pytest.approx([kent, vmf, point], abs=1e-6)
    for column, lead in (("Kent − vMF", kent - vmf), ("vMF − point", vmf - point), ("Kent − point", kent - point)):
        assert float(noisy[column].replace("−", "-")) == pytest.approx(lead, abs=1e-4)
    graded = {row["Condition"]: row for row in table(study, "conflicts", "graded")}
    stored = read_json(study.out / "runs" / f"kdph-vmf-few10-noise0.4-{BITS}-0" / "metrics.json")
    ndcg = np.mean([stored[direction]["ndcg_at"]["100"] for direction in ("i2t", "t2i")])
    assert float(graded[f"{BITS} bits, 13 items, 40% noisy"]["vMF (β = 0)"]) == pytest.approx(ndcg, abs=1e-6)
    for row in table(study, "conflicts", "shape"):
        assert float(row["β"]) == pytest.approx(0.1, abs=0.05)  # two epochs hardly move it from where it starts
        assert 0 < float(row["share of the shape"]) < 0.05


def test_the_causes_are_those_of_their_runs(study: Study, messages: str) -> None:
    *rows, on_queries = table(study, "causes")
    tried = variants()
    assert [variant.name for variant in tried] == CAUSES[:-1]
    assert [row["Variant"] for row in rows] == [variant.title for variant in tried]
    for row, variant in zip(rows, tried, strict=True):
        own = metrics(study, variant.name)
        figures = [float(row[f"{BITS} bits {column}"]) for column in ("I → T", "T → I", "real")]
        assert figures == pytest.approx([*own[:2], np.mean(own[2:])], abs=1e-6)
        if variant.against:
            change = np.mean(own[:2]) - np.mean(metrics(study, variant.against)[:2])
            assert float(row[f"{BITS} bits change"].replace("−", "-")) == pytest.approx(change, abs=1e-4)
    history = read_json(study.out / "runs" / f"{CAUSES[-1]}-{BITS}-0" / "history.json")
    assert len(history) == 2
    for direction, column in (("i2t", "I → T"), ("t2i", "T → I")):
        best = max(record[direction] for record in history)
        assert float(on_queries[f"{BITS} bits {column}"]) == pytest.approx(best, abs=1e-6)


def test_the_shape_is_measured_on_what_was_not_trained_on(study: Study, messages: str) -> None:
    (row,) = table(study, "shape")
    run = Run.open(study.out / "runs" / f"kaph-{BITS}-0")
    unseen = np.setdiff1d(np.arange(300), run.split.train)
    train, test = (run.outputs(study.source, rows) for rows in (run.split.train, unseen))
    fitted = np.concatenate([codes_of(train.image), codes_of(train.text)])
    labels = np.concatenate([study.labels[run.split.train]] * 2)
    precisions = [
        class_ranking(class_scores("point", fitted, labels, codes_of(side)), study.labels[unseen])
        for side in (test.image, test.text)
    ]
    assert float(row["point"]) == pytest.approx(np.nanmean(precisions), abs=1e-5)
    assert row["Bits"] == str(BITS) and 0 < float(row["Kent"]) <= 1 and 0 < float(row["vMF (β = 0)"]) <= 1


def test_measures_agree_with_the_runs_own(study: Study, grouped: Study) -> None:
    """The collapse table's groups make up the runs' mAP; a separation is the difference of its parts."""
    rows = table(study, "collapse")
    for title in ("DSPH", "KDPH"):
        whole = np.average([float(r[f"mAP {title}"]) for r in rows], weights=[int(r["Queries"]) for r in rows])
        assert whole == pytest.approx(np.mean(metrics(study, title.lower())[:2]), abs=1e-5)
    assert reproduce(grouped, "topology")[0].plots
    groups = table(study, "topology")
    assert [row["Group"] for row in groups] == ["even", "odd", "mean"]
    for row in groups:
        gap = float(row["Intra KDPH"]) - float(row["Inter KDPH"])
        assert float(row["Separation KDPH"]) == pytest.approx(gap, abs=2e-6)


def test_what_is_finished_is_kept(study: Study, messages: str) -> None:
    models = sorted(study.out.glob("runs/*/model/model.safetensors"))
    before = [model.stat().st_mtime_ns for model in models]
    table_before = (study.out / "gtsd" / "table.md").read_bytes()
    reproduce(Study(study.data, study.out, study.bits, study.seeds, study.epochs), "gtsd")
    assert (study.out / "gtsd" / "table.md").read_bytes() == table_before
    assert [model.stat().st_mtime_ns for model in models] == before
    with pytest.raises(UsageError, match=r"made with other settings \(epochs\)"):
        reproduce(Study(study.data, study.out, study.bits, 1, epochs=3), "gtsd")


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "data", "action", "poster"):
                self.links.append(value or "")
            elif name == "id":
                self.ids.add(value or "")


def test_the_report_needs_nothing_from_elsewhere(study: Study, messages: str) -> None:
    text = (study.out / "report.html").read_text()
    page = Page(text)
    made_targets = set(TARGETS) - {"topology"}
    assert {f"#{name}" for name in made_targets} <= set(page.links) and made_targets <= page.ids
    pictures = [link for link in page.links if link.startswith("data:image/svg+xml;base64,")]
    assert len(pictures) == sum(len(list((study.out / name).glob("figure*.svg"))) for name in made_targets)
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in page.links)
    for picture in pictures:
        drawing = base64.b64decode(picture.partition(",")[2]).decode()
        assert Page(drawing).tags.count("svg") == 1
        assert all(link.startswith(("#", "data:image/png;base64,")) for link in Page(drawing).links)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style and "script" not in page.tags and "link" not in page.tags
    assert all(study.command(name) in text for name in made_targets)


def test_analyze_gives_the_measures_of_one_run(study: Study, grouped: Study, tmp_path: Path) -> None:
    run = study.out / "runs" / "kdph-16-0"
    printed = run_here("analyze", str(run), "--json")
    result = json.loads(printed.stdout)
    assert result["method"] == "kdph" and len(result["classes"]) == 12
    assert set(result["flip_rate_by_epoch"]) == {"2"} and set(result["groups"]) == {"even", "odd"}
    row = table(study, "chaos")[-1]
    assert result["chaos"]["index"] == pytest.approx(float(row["Chaos Index"]), abs=1e-5)
    assert "| class 11 |" in as_text(result) and result["left_out"] == []
    assert printed.stderr == ""
    plain = shutil.copytree(run, tmp_path / "plain", ignore=shutil.ignore_patterns("proxies", "checkpoint"))
    less = analyse(plain)  # neither recorded nor with a checkpoint: its codes are all there is
    assert less["map_by_labels"] == result["map_by_labels"] and not {"chaos", "gtsd_by_labels", "groups"} & set(less)
    proxies, epochs = as_text(less).splitlines()[-2:]
    assert proxies.startswith("GTSD, cosines of proxies and topology are left out: the run's checkpoint")
    assert f"kenthash train --recipe {plain / 'recipe.yaml'} --out NEW" in proxies
    assert epochs.startswith("flip rate and Chaos Index are left out: the run has no record of its epochs")
    (plain / "checkpoint").mkdir()  # empty is as good as gone
    assert analyse(plain)["left_out"] == less["left_out"]
    with pytest.raises(DataError, match="not a run"):
        analyse(tmp_path / "nothing")
