"""The paper's printed figures beside ours, where data, method and length agree."""

import json
from pathlib import Path

import pytest

from kenthash.studies.compare import Comparison, compare_sheets
from kenthash.studies.published import ablation_beside_published, beside_published, published_figures
from kenthash.studies.results import DIRECTIONS, Cell, Row
from kenthash.studies.targets.ablation import VARIANTS
from packs import write_pack


def test_printed_minus_codes() -> None:
    cells = {(d, 16): Cell(maps=(0.7, 0.72), real=(0.75, 0.77)) for d in DIRECTIONS}
    rows = [Row("KDPH", "", "paper", cells), Row("KAPH", "", "own", cells)]
    sheet = beside_published(rows, [16, 24], "MS COCO 2017", 1000)
    assert sheet is not None
    assert sheet.head == ["Task", "Method", "16 printed", "16 codes", "16 real", "16 printed − codes"]
    printed = [published_figures().map["coco"]["KDPH"][d][0] for d in DIRECTIONS]
    assert [row[1] for row in sheet.rows] == ["KDPH", "KDPH"]  # the paper has no figure of KAPH
    for row, figure in zip(sheet.rows, printed, strict=True):
        assert row[2:] == pytest.approx([figure, 0.71, 0.76, figure - 0.71])
    assert beside_published(rows, [24], "MS COCO 2017", 1000) is None
    assert beside_published(rows, [16], "scenes", 1000) is None


def test_a_comparison_on_a_benchmark_has_the_papers_figures(tmp_path: Path) -> None:
    pack = write_pack(tmp_path / "pack", items=100)
    meta = json.loads((pack / "meta.json").read_text())
    (pack / "meta.json").write_text(json.dumps({**meta, "name": "coco sample"}))
    sheets = compare_sheets(Comparison(pack, tmp_path / "out", ("dsph",), (16,), 1, {"epochs": 1}))
    assert [sheet.name for sheet in sheets] == ["table", "published"]
    text = (tmp_path / "out" / "published.md").read_text()
    assert "123,289 items of coco" in text and text.count("DSPH") == 2


def test_the_ablation_beside_the_papers() -> None:
    titles = [title for _, title, _ in VARIANTS]
    assert list(published_figures().ablation.map) == titles
    full = published_figures().ablation.map["full KDPH"]
    assert [full[d] for d in DIRECTIONS] == [published_figures().map["coco"]["KDPH"][d][2] for d in DIRECTIONS]
    rows = [
        Row(title, "", "", {(d, 64): Cell(maps=(0.6 + place / 100,), real=(0.7,)) for d in DIRECTIONS})
        for place, title in enumerate(titles)
    ]
    sheet = ablation_beside_published(rows, 64, "coco20k", 20_250)
    assert sheet is not None and len(sheet.rows) == 12
    assert sheet.rows[2][:2] == ["image → text", "no L_Reg"]
    assert sheet.rows[2][2:] == pytest.approx([0.7326, 0.62, 0.7, 0.1126, 0.0517, 0.03])
    assert "table of its ablation study, 123,289 items of coco. 5,000 queries" in sheet.caption
    assert ablation_beside_published(rows, 32, "coco20k", 20_250) is None
    assert ablation_beside_published(rows, 64, "scenes", 20_250) is None
