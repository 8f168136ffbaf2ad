"""The table, the figures and the benchmark, as a person meets them."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image, ImageColor
from slow_retrieval import make

from kenthash.bench.evaluation import bench_eval, render, synthetic
from kenthash.errors import UsageError
from kenthash.evaluation import Evaluation, evaluate_codes, map_of
from kenthash.evaluation import render_table as table
from kenthash.evaluation.figures import STYLES, save_figures


@pytest.fixture(scope="module")
def evaluations() -> dict[str, Evaluation]:
    names = ("i2t", "t2i", "i2i", "t2t")
    return {name: evaluate_codes(*make(seed, 60, 400, 16, 5)) for seed, name in enumerate(names)}


def test_the_table_shows_each_direction_in_80_columns(evaluations: dict[str, Evaluation]) -> None:
    lines = table(evaluations).splitlines()
    assert max(map(len, lines)) <= 80
    for name, title in (
        ("i2t", "image → text"),
        ("t2i", "text → image"),
        ("i2i", "image → image"),
        ("t2t", "text → text"),
    ):
        (line,) = (line for line in lines if line.startswith(f"{title}  ") and "left out" not in line)
        e = evaluations[name]
        assert f"{e.map:.4f}" in line
        assert f"{e.ndcg_at[100]:.4f}" in line
        assert (f"{title}: {e.excluded} queries without a relevant item left out" in table(evaluations)) == (
            e.excluded > 0
        )
    assert sum(e.excluded for e in evaluations.values()) > 0


def test_figures_are_whole_pictures_with_their_labels(evaluations: dict[str, Evaluation], tmp_path: Path) -> None:
    paths = save_figures(evaluations, tmp_path / "figures")
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(path.name for path in paths)
    assert {path.name for path in paths} == {
        f"{n}.{x}" for n in ("precision_recall", "precision_at_n") for x in ("png", "svg")
    }
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                pixels = np.asarray(picture.convert("RGB"))
            for style in STYLES[:4]:  # each line is drawn
                assert (pixels == ImageColor.getrgb(style["color"])).all(axis=2).sum() > 500
        else:
            text = "".join(ElementTree.parse(path).getroot().itertext())
            assert "Precision" in text
            assert f"image → text (mAP {evaluations['i2t'].map:.3f})" in text


def test_the_benchmark_compares_equal_numbers() -> None:
    result = bench_eval(queries=23, items=3_000, bits=32, classes=12, rounds=1)
    assert result["equal"]
    assert result["largest_ap_difference"] < 1e-9
    codes, labels = synthetic(3_023, 32, 12, 0)
    assert result["map_stable"] == pytest.approx(
        map_of(codes[:23], codes[23:], labels[:23], labels[23:], ties="stable")
    )
    assert result["ratio"] == pytest.approx(result["field_seconds"] / result["expected_seconds"])
    assert result["peak_mib"] > 0
    assert f"{result['map_field']:.6f}" in render(result)
    assert max(map(len, render(result).splitlines())) <= 80
    with pytest.raises(UsageError, match="queries 0"):
        bench_eval(queries=0)
