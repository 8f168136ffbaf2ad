"""`data check`: its numbers against hand counts and slow references, its words and its exit codes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from layouts import write_jsonl, write_pack, write_picture

from kenthash.data.check import average_cooccurring_labels, check_dataset
from kenthash.data.dataset import Dataset
from kenthash.data.readers import read_dataset
from kenthash.data.report import DataReport
from kenthash.errors import DataError
from processes import PATIENCE

#       person dog kite
ROWS = [[1, 1, 0], [1, 1, 1], [1, 0, 0], [0, 0, 0]]


def made_by_hand(**changes: object) -> Dataset:
    parts: dict[str, object] = {
        "name": "hand",
        "ids": ["a", "b", "c", "d"],
        "labels": np.array(ROWS, dtype=np.uint8),
        "classes": ["person", "dog", "kite"],
        "texts": [["x"], ["y", "z"], ["..."], ["w"]],
    }
    return Dataset(**(parts | changes))  # type: ignore[arg-type]


def examples(report: DataReport, words: str) -> list[str]:
    """The examples of the one problem whose description has these words."""
    [problem] = [problem for problem in report.problems if words in problem.what]
    assert problem.remedy
    return problem.examples


def test_numbers_by_hand() -> None:
    report = check_dataset(made_by_hand())
    assert (report.items, report.texts, report.pictures) == (4, 5, None)
    assert report.labels_per_item == {0: 1, 1: 1, 2: 1, 3: 1} and report.mean_labels == 1.5
    counts = [(each.name, each.items, each.acl) for each in report.classes]
    # person: items with 2, 3 and 1 labels, so (1 + 2 + 0) / 3; dog: (1 + 2) / 2; kite: 2 / 1
    assert counts == [("person", 3, 1.0), ("dog", 2, 1.5), ("kite", 1, 2.0)]
    assert report.mean_acl == 1.5
    pairs = [(pair.first, pair.second, pair.items, pair.share) for pair in report.pairs]
    assert pairs == [("person", "dog", 2, 1.0), ("person", "kite", 1, 1.0), ("dog", "kite", 1, 1.0)]
    assert examples(report, "items without a label: 1;") == ["d"]
    assert examples(report, "text that has no words: 1") == ["c"]
    assert examples(report, "too few") == []
    assert report.usable


@given(arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 6)), elements=st.integers(0, 1)))
def test_acl_and_pairs_are_those_of_a_loop(labels: np.ndarray) -> None:
    acl = average_cooccurring_labels(labels)
    for c in range(labels.shape[1]):
        others = [sum(row) - 1 for row in labels.tolist() if row[c]]
        assert acl[c] == pytest.approx(sum(others) / len(others) if others else np.nan, nan_ok=True)
    classes = [f"c{c}" for c in range(labels.shape[1])]
    report = check_dataset(Dataset("any", [f"i{i}" for i in range(len(labels))], labels, classes))
    assert {each.name: each.acl for each in report.classes} == dict(zip(classes, np.nan_to_num(acl), strict=True))
    both = {
        (a, b): sum(r[i] * r[j] for r in labels.tolist()) for i, a in enumerate(classes) for j, b in enumerate(classes)
    }
    assert {(pair.first, pair.second): pair.items for pair in report.pairs} == {
        (a, b): n for (a, b), n in both.items() if a < b and n
    }
    assert all(len(line) <= 80 for line in report.to_text().splitlines())


def test_duplicate_ids_make_data_unusable() -> None:
    report = check_dataset(made_by_hand(ids=["a", "b", "a", "a"]))
    assert not report.usable
    assert examples(report, "ids that occur more than once: 1;") == ["a"]
    assert report.to_text().startswith("hand: not usable as it is, 1 error and 3 warnings")


def test_classes_that_never_occur_and_data_without_labels() -> None:
    labels = np.array(ROWS, dtype=np.uint8)
    labels[:, 1] = 0
    assert examples(check_dataset(made_by_hand(labels=labels)), "classes that never occur: 1;") == ["dog"]
    bare = check_dataset(made_by_hand(labels=np.zeros((4, 0), dtype=np.uint8), classes=[], texts=[["x"]] * 4))
    assert bare.usable and not bare.problems[:-1]  # which says that four items are too few to be split
    assert bare.notes == [
        "no item has a label: captions alone are learned from, and figures by shared labels are left out"
    ]
    assert all(len(line) <= 80 for line in bare.to_text().splitlines())


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (np.eye(4, dtype=np.uint8), "no two of the 4 items share a label"),
        (np.ones((4, 2), np.uint8), "all 4 items with labels have the same ones"),
        (np.array([[0], [1], [0], [1]], np.uint8), "all 2 items with labels have the same ones"),
    ],
)
def test_labels_that_teach_nothing_are_a_warning(labels: np.ndarray, why: str) -> None:
    report = check_dataset(made_by_hand(labels=labels, classes=[f"c{c}" for c in range(labels.shape[1])]))
    assert report.usable and examples(report, f"{why}, so nothing can be learned from the labels") == []


def test_items_without_a_text() -> None:
    report = check_dataset(made_by_hand(texts=[["x"], [], [" "], ["w", ""]]))
    assert report.usable and report.texts == 2 and examples(report, "items without a text: 2;") == ["b", "c"]


def test_class_names_that_look_like_mistakes() -> None:
    names = ["Dog", "dog ", "dog", "dog,people", "traffic light"]
    report = check_dataset(made_by_hand(labels=np.ones((4, 5), dtype=np.uint8), classes=names))
    assert examples(report, "class names that differ only in case or spaces: 1;") == ["'Dog', 'dog ', 'dog'"]
    assert examples(report, "class names with a comma, semicolon or bar: 1;") == ["dog,people"]


def test_what_the_reader_found_wrong_is_part_of_the_report(tmp_path: Path) -> None:
    folder = picture_folder(tmp_path)
    (folder / "e.jpg").unlink()
    report = check_dataset(read_dataset(folder), pictures=False)
    assert report.usable and examples(report, "rows left out, no picture file: 1 of 25") == ["metadata.jsonl:5 e.jpg"]
    assert "usable, 1 warning" in report.to_text()


def picture_folder(root: Path) -> Path:
    """25 items; b is no picture, c is cut short, d is a copy of a."""
    names = [f"{letter}.jpg" for letter in "abcdefghijklmnopqrstuvwxy"]
    for shade, name in enumerate(names):
        write_picture(root / name, 10 * shade, size=(64, 48))
    (root / "b.jpg").write_text("words")
    (root / "c.jpg").write_bytes((root / "c.jpg").read_bytes()[:400])
    shutil.copy(root / "a.jpg", root / "d.jpg")
    labels = [["dog"], ["dog", "kite"]] * 13
    rows = [{"file_name": name, "text": "a dog", "labels": own} for name, own in zip(names, labels, strict=False)]
    write_jsonl(root / "metadata.jsonl", rows)
    return root


def test_pictures_are_opened_and_compared(tmp_path: Path) -> None:
    data = read_dataset(picture_folder(tmp_path))
    with (tmp_path / "metadata.jsonl").open("a") as stream:
        stream.write('{"file_name": "e.jpg", "text": "again", "labels": ["dog"]}\n')
    report = check_dataset(read_dataset(tmp_path))
    bad = examples(report, "pictures that cannot be read: 2 of 26")
    assert bad[0] == "b.jpg: not a picture that can be decoded" and bad[1].startswith("c.jpg: ")
    assert examples(report, "byte for byte: 1;") == ["a.jpg = d.jpg"]  # e.jpg is not its own copy for having two rows
    assert examples(report, "ids that occur more than once") == ["e.jpg"]
    assert report.pictures_checked
    unopened = check_dataset(data, pictures=False)
    assert unopened.problems == [] and "25 (not opened)" in unopened.to_text()


def test_pictures_of_which_most_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    data = read_dataset(picture_folder(tmp_path))
    assert data.pictures is not None
    for spoilt, usable in ((12, True), (13, False)):
        for picture in data.pictures[:spoilt]:
            picture.write_text("words")
        for picture in data.pictures[spoilt:]:
            write_picture(picture)
        report = check_dataset(data)
        assert report.usable is usable and len(examples(report, f"cannot be read: {spoilt} of 25")) == spoilt


def kenthash(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "kenthash", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE
    )


def test_command_prints_a_page_or_one_json_value(tmp_path: Path) -> None:
    folder = picture_folder(tmp_path / "holiday")
    page = kenthash("data", "check", folder)
    assert page.returncode == 0 and page.stderr == ""
    assert page.stdout.startswith("holiday: usable, 2 warnings\n")
    assert max(map(len, page.stdout.splitlines())) <= 80
    value = kenthash("data", "check", folder, "--json", "--no-pictures")
    report = json.loads(value.stdout)
    assert value.returncode == 0 and report["usable"] and report["items"] == 25
    assert report["classes"][0] == {"name": "dog", "items": 25, "acl": 0.48}


def test_command_finds_bad_vectors_and_exits_with_1(tmp_path: Path) -> None:
    write_pack(tmp_path, items=30)
    text = np.load(tmp_path / "text.npy")
    text[7] = np.nan
    np.save(tmp_path / "text.npy", text)
    value = kenthash("data", "check", tmp_path, "--json")
    report = json.loads(value.stdout)
    assert value.returncode == 1 and not report["usable"]
    [problem] = [problem for problem in report["problems"] if problem["kind"] == "error"]
    assert problem["what"].startswith("rows of text.npy with NaN or infinity: 1;") and problem["examples"] == ["row 7"]


def test_command_refuses_in_one_line(tmp_path: Path) -> None:
    result = kenthash("data", "check", tmp_path / "gone")
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == f"error: {tmp_path / 'gone'}: there is no such folder\n"
    (tmp_path / "full").mkdir()
    write_picture(tmp_path / "full" / "a.jpg")
    result = kenthash("data", "scenes", "--out", tmp_path / "full")
    assert result.returncode == 2
    says = "is not an empty folder: give a new one, or remove this one first"
    assert result.stderr == f"error: {tmp_path / 'full'}: {says}\n"


def test_dataset_refuses_parts_that_disagree() -> None:
    for changes, words in (
        ({"ids": ["a", "b"]}, "2 ids but 4 rows of labels"),
        ({"texts": [["x"]] * 3}, "4 ids but 3 rows of texts"),
        ({"classes": ["person", "dog"]}, "3 columns but there are 2 class names"),
        ({"labels": np.array(ROWS, dtype=np.uint8) * 2}, "labels must be 0 or 1"),
        ({"labels": np.array(ROWS)}, "labels must be uint8"),
        ({"ids": ["a", "b\nc", "d", "e"]}, "has a line break"),
        ({"ids": [], "texts": None}, "there are no items"),
    ):
        with pytest.raises(DataError, match=words):
            made_by_hand(**changes)
