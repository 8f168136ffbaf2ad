"""Picture folders with metadata.jsonl, as people make them, and folders that are nothing we know."""

import json
import os
import re
from pathlib import Path

import pytest
from layouts import write_jsonl, write_picture, write_text

from kenthash.data.readers import read_dataset
from kenthash.errors import DataError


def test_rows_become_items(tmp_path: Path) -> None:
    root = tmp_path / "holiday"
    for name in ("a.jpg", "sub/b.png", "c.webp"):
        write_picture(root / name)
    rows = [
        {"file_name": "a.jpg", "text": "two dogs", "labels": ["dog", "beach", "dog"], "camera": "X100"},
        {"file_name": "sub/b.png", "texts": ["a kite", "it flies"], "labels": ["kite"]},
        {"file_name": "./c.webp", "labels": "beach"},
    ]
    write_text(root / "metadata.jsonl", "\ufeff" + "\r\n\r\n".join(json.dumps(row) for row in rows))
    data = read_dataset(root)
    assert data.name == "holiday"
    assert data.ids == ["a.jpg", "sub/b.png", "c.webp"]
    assert data.classes == ["beach", "dog", "kite"]
    assert data.labels.tolist() == [[1, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert data.texts == [["two dogs"], ["a kite", "it flies"], [""]]
    assert data.pictures == [root / "a.jpg", root / "sub" / "b.png", root / "c.webp"]
    assert data.notes == ["items without a text: 1 (c.webp)"]


def test_metadata_of_folders_below_and_listed_classes(tmp_path: Path) -> None:
    for part in ("train", "test"):
        write_picture(tmp_path / part / "x.jpg")
        write_jsonl(tmp_path / part / "metadata.jsonl", [{"file_name": "x.jpg", "labels": ["dog", part]}])
    write_text(tmp_path / "classes.json", '["kite", "dog", "test"]')
    data = read_dataset(tmp_path)
    assert data.ids == ["test/x.jpg", "train/x.jpg"]
    assert data.classes == ["kite", "dog", "test"]
    assert data.labels.tolist() == [[0, 1, 1], [0, 1, 0]]
    assert data.texts is None
    assert data.notes == ["labels left out, not in classes.json: 1 (train)"]


def test_halves_of_characters_empty_labels_and_texts_that_are_null(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        write_picture(tmp_path / name)
    rows = [
        {"file_name": "a.jpg", "texts": None, "text": "cut off \ud83d", "labels": ["", "dog", "caf\u00e9 \U0001f436"]},
        {"file_name": "b.jpg", "texts": [], "text": "a kite", "labels": ""},
        {"file_name": "\ud83d.jpg", "text": "no file can have this name"},
    ]
    write_jsonl(tmp_path / "metadata.jsonl", rows)
    data = read_dataset(tmp_path)
    assert data.texts == [["cut off \ufffd"], ["a kite"]]
    assert data.classes == ["caf\u00e9 \U0001f436", "dog"] and data.labels.tolist() == [[1, 1], [0, 0]]
    assert data.notes == ["rows left out, no picture file: 1 (metadata.jsonl:3 \ufffd.jpg)"]


@pytest.mark.parametrize("listed", ["null", "7", '"dog"', '["dog", "dog"]', '["dog", null]', "[" * 100_000])
def test_classes_that_are_no_list_of_names_are_refused(tmp_path: Path, listed: str) -> None:
    write_picture(tmp_path / "a.jpg")
    write_jsonl(tmp_path / "metadata.jsonl", [{"file_name": "a.jpg", "labels": ["dog"]}])
    write_text(tmp_path / "classes.json", listed)
    with pytest.raises(DataError, match=r"classes\.json: (must be a list of names|not valid JSON)"):
        read_dataset(tmp_path)


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv"])
def test_a_line_without_end_is_refused(tmp_path: Path, name: str) -> None:
    write_picture(tmp_path / "a.jpg")
    write_text(tmp_path / name, "file_name,text\n" * (name == "metadata.csv") + '"x",' * 300_000)
    with pytest.raises(DataError, match=rf"{name}:\d: a line of more than 1,048,576 characters"):
        read_dataset(tmp_path)


def test_csv(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.jpg")
    write_picture(tmp_path / "b.jpg")
    write_text(tmp_path / "metadata.csv", 'file_name,text,labels\na.jpg,"one, ""two""",dog; kite\nb.jpg,,\n')
    data = read_dataset(tmp_path)
    assert data.ids == ["a.jpg", "b.jpg"] and data.texts == [['one, "two"'], [""]]
    assert data.classes == ["dog", "kite"] and data.labels.tolist() == [[1, 1], [0, 0]]


def test_bad_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.jpg")
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")  # opening it would wait for ever
    rows = [
        {"file_name": "a.jpg", "text": 7, "labels": ["dog"]},
        {"file_name": "gone.jpg", "text": "x"},
        {"text": "no name"},
        ["not", "an", "object"],
        {"file_name": 3},
        {"file_name": "a\nb.jpg"},
        {"file_name": "folder.jpg"},
        {"file_name": "pipe.jpg"},
    ]
    write_jsonl(tmp_path / "metadata.jsonl", rows)
    data = read_dataset(tmp_path)
    assert data.ids == ["a.jpg"] and data.classes == ["dog"]
    assert data.notes[0].startswith("rows left out, no picture file: 3 (metadata.jsonl:2 gone.jpg, ")
    assert data.notes[1].startswith("rows left out, no file_name in them: 4 (metadata.jsonl:3, metadata.jsonl:4, ")
    assert data.notes[2] == "rows whose text or labels are not strings, taken without them: 1 (metadata.jsonl:1)"


@pytest.mark.parametrize(
    "line", ['{"file_name": "a.jpg"', "{'file_name': 'a.jpg'}", "a.jpg", "[" * 100_000, '"\udcff"']
)
def test_broken_line_is_an_error_with_its_number(tmp_path: Path, line: str) -> None:
    write_picture(tmp_path / "a.jpg")
    text = '{"file_name": "a.jpg"}\n' + line + "\n"
    (tmp_path / "metadata.jsonl").write_bytes(text.encode("utf-8", errors="surrogateescape"))
    with pytest.raises(DataError, match=r"metadata\.jsonl(:2: not valid JSON|: not UTF-8 text)") as refused:
        read_dataset(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["parent", "absolute", "link", "linked folder"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, kind: str) -> None:
    secret = write_picture(tmp_path / "secret" / "s.jpg")
    root = tmp_path / "data"
    write_picture(root / "a.jpg")
    name = {"parent": "../secret/s.jpg", "absolute": str(secret), "link": "s.jpg", "linked folder": "out/s.jpg"}[kind]
    if kind == "link":
        (root / "s.jpg").symlink_to(secret)
    if kind == "linked folder":
        (root / "out").symlink_to(secret.parent)
    write_jsonl(root / "metadata.jsonl", [{"file_name": "a.jpg"}, {"file_name": name}])
    with pytest.raises(DataError, match=r"metadata\.jsonl:2: file_name .* out of the folder"):
        read_dataset(root)


def test_a_link_that_stays_inside_is_fine(tmp_path: Path) -> None:
    write_picture(tmp_path / "real" / "a.jpg")
    (tmp_path / "b.jpg").symlink_to(tmp_path / "real" / "a.jpg")
    write_jsonl(tmp_path / "metadata.jsonl", [{"file_name": "b.jpg"}])
    assert read_dataset(tmp_path).ids == ["b.jpg"]


def test_pictures_without_metadata_get_an_example_that_works(tmp_path: Path) -> None:
    write_picture(tmp_path / "sub" / "a.jpg")
    with pytest.raises(DataError, match=r"pictures without metadata\.jsonl") as refused:
        read_dataset(tmp_path)
    line = str(refused.value).partition("a line a picture: ")[2]
    write_text(tmp_path / "metadata.jsonl", line + "\n")  # do as the error says
    data = read_dataset(tmp_path)
    assert data.ids == ["sub/a.jpg"] and data.classes == ["dog", "kite"]


def test_what_is_none_of_the_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "notes.txt", "hello")
    with pytest.raises(DataError) as refused:
        read_dataset(tmp_path)
    for name in ("metadata.jsonl", "ids.txt", "instances_*2017.json", "im*.jpg", "index.mat", "Imagelist.txt"):
        assert name in str(refused.value)
    with pytest.raises(DataError, match="there is no such folder"):
        read_dataset(tmp_path / "gone")
    with pytest.raises(DataError, match="there is no such folder"):
        read_dataset(Path("~nobody-of-this-name/photos"))
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        read_dataset(tmp_path / ("x" * 300))
    with pytest.raises(DataError, match="is a file: give the folder"):
        read_dataset(tmp_path / "notes.txt")
    write_jsonl(tmp_path / "metadata.jsonl", [{"file_name": "gone.jpg"}])
    with pytest.raises(DataError, match=r"no row has a picture that is here, such as metadata\.jsonl:1 gone\.jpg"):
        read_dataset(tmp_path)
    write_picture(tmp_path / "gone.jpg")
    monkeypatch.chdir(tmp_path)
    assert read_dataset(Path()).name == tmp_path.name


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("dog,people", r'labels "dog,people" is one string: write a list, \["dog", "people"\], or \["dog,people"\] if'),
        ("dog; people", r'write a list, \["dog", "people"\]'),
        ("dog|people", r'write a list, \["dog", "people"\]'),
        ("['dog', 'people']", r'write a list, \["dog", "people"\]'),
    ],
)
def test_labels_in_one_string_are_refused(tmp_path: Path, value: str, says: str) -> None:
    for name in ("a.jpg", "b.jpg"):
        write_picture(tmp_path / name)
    rows = [{"file_name": "a.jpg", "labels": "dog"}, {"file_name": "b.jpg", "labels": value}]
    write_jsonl(tmp_path / "metadata.jsonl", rows)
    with pytest.raises(DataError, match=rf"metadata\.jsonl:2: .*{says}"):
        read_dataset(tmp_path)
    write_text(tmp_path / "classes.json", json.dumps(["dog", value]))  # where it is the name of a class, it is one
    assert read_dataset(tmp_path).labels.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('a.jpg,two dogs,"dog,people"', "labels 'dog,people': separate them by semicolons, dog;people"),
        ("a.jpg,two dogs,dog|people", "labels 'dog|people': separate them by semicolons, dog;people"),
        ("a.jpg,two dogs,\"['dog', 'people']\"", "separate them by semicolons, dog;people"),
        ("a.jpg,two dogs,dog,people", "4 values, but 3 columns: put a value with commas into double quotes"),
        ("a.jpg,two dogs, one cat,dog", "4 values, but 3 columns"),
    ],
)
def test_commas_in_a_csv_are_refused(tmp_path: Path, line: str, says: str) -> None:
    write_picture(tmp_path / "a.jpg")
    write_text(tmp_path / "metadata.csv", f"file_name,text,labels\n{line}\n")
    with pytest.raises(DataError, match=rf"metadata\.csv:2: .*{re.escape(says)}"):
        read_dataset(tmp_path)


def test_csv_with_spaces_after_commas_and_empty_columns(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.jpg")
    text = 'file_name, text, labels,\r\na.jpg, "one, two", "fox, red; dog",\r\n'
    write_text(tmp_path / "metadata.csv", text)
    data = read_dataset(tmp_path)
    assert data.texts == [["one, two"]] and data.classes == ["dog", "fox, red"]
