"""Picture folders with metadata.jsonl, as people make them, and folders that are nothing we know."""

import json
import os
import re
from pathlib import Path

import pytest
from layouts import write_jsonl, write_picture, write_text

from kenthash.data.dataset import Dataset
from kenthash.data.readers import read_dataset
from kenthash.data.readers.folder import read_rows
from kenthash.errors import DataError


def test_a_folder_whose_name_is_not_utf8_is_refused_in_one_line(tmp_path: Path) -> None:
    for name in ("fine", os.fsdecode(b"\xff")):
        write_picture(tmp_path / name / "a.jpg")
        write_text(tmp_path / name / "metadata.jsonl", '{"file_name": "a.jpg", "text": "a dog"}\n')
    with pytest.raises(DataError, match=r"'\\udcff/a\.jpg' is not UTF-8: rename this file or folder"):
        read_dataset(tmp_path)


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
    assert warnings(data) == {"rows left out, no picture file: 1 of 3": ["metadata.jsonl:3 \ufffd.jpg"]}


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
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        write_picture(tmp_path / name)
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
        {"file_name": "b.jpg", "text": "x", "labels": [3]},
        {"file_name": "c.jpg", "text": "x", "labels": ["dog", None]},
    ]
    write_jsonl(tmp_path / "metadata.jsonl", rows)
    data = read_dataset(tmp_path)
    assert data.ids == ["a.jpg", "b.jpg", "c.jpg"] and data.classes == ["dog"]
    assert data.labels.tolist() == [[1], [0], [0]]
    assert warnings(data) == {
        "rows left out, no picture file: 3 of 6": [
            "metadata.jsonl:2 gone.jpg",
            "metadata.jsonl:7 folder.jpg",
            "metadata.jsonl:8 pipe.jpg",
        ],
        "rows left out, no file_name in them: 4": [f"metadata.jsonl:{line}" for line in (3, 4, 5, 6)],
        "rows whose text or labels are not strings, taken without them: 3": [
            f"metadata.jsonl:{line}" for line in (1, 9, 10)
        ],
    }


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
    assert f"they can be searched at once, with `kenthash index add {tmp_path}`" in str(refused.value)
    line = str(refused.value).partition("one line per picture: ")[2]
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
    with pytest.raises(DataError, match=r"1 of 1 pictures are not here, such as metadata\.jsonl:1 gone\.jpg"):
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


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            [{"filename": "a.jpg", "text": "x"}],
            'jsonl:1: no "file_name", only "filename", "text": rename "filename" to "file_name"',
        ),
        ([{"text": "x", "Image": "a.jpg"}], 'rename "Image" to "file_name"'),
        ([{"text": "x"}], 'jsonl:1: no "file_name", only "text": name the picture of each row with "file_name"'),
        ([{}], 'jsonl:1: no "file_name": name the picture'),
        ([7], 'jsonl:1: not a JSON object such as {"file_name": "a.jpg"'),
        ([{"file_name": 3}], "jsonl:1: file_name '3' is not the name of a picture"),
        ([], r"jsonl: has no rows"),
    ],
)
def test_rows_that_name_no_picture_show_what_they_have(tmp_path: Path, rows: list[object], says: str) -> None:
    write_picture(tmp_path / "a.jpg")
    write_jsonl(tmp_path / "metadata.jsonl", rows)
    with pytest.raises(DataError, match=re.escape(says)):
        read_dataset(tmp_path)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("filename,text", 'no column "file_name", only "filename", "text": rename "filename" to "file_name"'),
        ("file_name;text;labels", 'only "file_name;text;labels": columns are separated by commas'),
        ("a.jpg,two dogs", 'only "a.jpg", "two dogs": the first line names the columns'),
    ],
)
def test_columns_of_a_csv_that_are_misnamed(tmp_path: Path, header: str, says: str) -> None:
    write_picture(tmp_path / "a.jpg")
    write_text(tmp_path / "metadata.csv", f"{header}\na.jpg,x\n")
    with pytest.raises(DataError, match=re.escape(f"metadata.csv:1: {says}" if says[0] == "n" else says)):
        read_dataset(tmp_path)


def test_keys_that_are_nearly_those_that_are_read(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        write_picture(tmp_path / name)
    rows = [
        {"file_name": "a.jpg", "captions": ["x"], "label": "dog"},
        {"file_name": "b.jpg", "caption": "x", "label": "dog"},
        {"file_name": "c.jpg", "text": "x", "caption": "y", "labels": ["dog"], "label": "z"},  # what is read is there
    ]
    write_jsonl(tmp_path / "metadata.jsonl", rows)
    data = read_dataset(tmp_path)
    assert data.texts == [[""], [""], ["x"]] and data.classes == ["dog"] and data.labels.tolist() == [[0], [0], [1]]
    assert warnings(data) == {
        'rows with "captions" and no "text": 1; it is not read': ["metadata.jsonl:1"],
        'rows with "caption" and no "text": 1; it is not read': ["metadata.jsonl:2"],
        'rows with "label" and no "labels": 2; it is not read': ["metadata.jsonl:1", "metadata.jsonl:2"],
    }
    (tmp_path / "metadata.jsonl").unlink()
    write_text(tmp_path / "metadata.csv", "file_name,Text,label\na.jpg,x,dog\n")
    assert list(warnings(read_dataset(tmp_path))) == [
        'rows with "Text" and no "text": 1; it is not read',
        'rows with "label" and no "labels": 1; it is not read',
    ]


def warnings(data: Dataset) -> dict[str, list[str]]:
    """What the reader found wrong, with its examples."""
    assert all(problem.kind == "warning" and problem.remedy for problem in data.problems)
    return {problem.what: problem.examples for problem in data.problems}


@pytest.mark.parametrize("present", [1, 5])
def test_a_folder_without_most_of_its_pictures_is_refused(tmp_path: Path, present: int) -> None:
    names = [f"sub/{i}.jpg" for i in range(10)]
    for name in names[:present]:
        write_picture(tmp_path / name)
    write_jsonl(tmp_path / "metadata.jsonl", [{"file_name": name, "labels": ["x"]} for name in names])
    if present == 5:
        assert list(warnings(read_dataset(tmp_path))) == ["rows left out, no picture file: 5 of 10"]
        return
    with pytest.raises(DataError, match=r"metadata\.jsonl: 9 of 10 pictures are not here, such as .*:2 sub/1\.jpg: "):
        read_dataset(tmp_path)


def test_windows_paths_are_told_of(tmp_path: Path) -> None:
    write_picture(tmp_path / "sub" / "a.jpg")
    write_jsonl(tmp_path / "metadata.jsonl", [{"file_name": "sub\\a.jpg"}])
    with pytest.raises(DataError, match=r"write / and not \\ between folders"):
        read_dataset(tmp_path)


@pytest.mark.parametrize("space", ["", "\n", " "])
@pytest.mark.parametrize("rows", [1, 20_000])
def test_a_json_array_is_told_of(tmp_path: Path, rows: int, space: str) -> None:
    """Indented, on one line, and on a line that is too long."""
    write_picture(tmp_path / "a.jpg")
    array = json.dumps([{"file_name": "a.jpg", "text": "x" * 50}] * rows, indent=space and 2)
    write_text(tmp_path / "metadata.jsonl", space + array)
    with pytest.raises(DataError, match=r"metadata\.jsonl: is one JSON array: write each object on a line of its own"):
        read_dataset(tmp_path)


def test_an_object_on_several_lines_is_told_of(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.jpg")
    for text in ('{\n  "file_name": "a.jpg"\n}\n', '{"file_name": "a.jpg",\n"text": "x"}\n'):
        write_text(tmp_path / "metadata.jsonl", text)
        with pytest.raises(DataError, match=r"metadata\.jsonl:1: not valid JSON: the object does not end on this"):
            read_dataset(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_told_of(tmp_path: Path, encoding: str) -> None:
    write_picture(tmp_path / "a.jpg")
    (tmp_path / "metadata.csv").write_bytes("file_name,text\na.jpg,caf\u00e9 au lait\n".encode(encoding))
    with pytest.raises(DataError, match=r"metadata\.csv: not UTF-8 text: .*: save it as UTF-8"):
        read_dataset(tmp_path)


def test_a_row_of_a_csv_has_all_its_columns(tmp_path: Path) -> None:
    path = write_text(tmp_path / "metadata.csv", "file_name,labels,year,,note\na.jpg,dog;kite,2024,,x\nb.jpg,,2025\n")
    assert list(read_rows(path)) == [
        (2, {"file_name": "a.jpg", "labels": ["dog", "kite"], "year": "2024", "note": "x"}),
        (3, {"file_name": "b.jpg", "labels": [], "year": "2025"}),
    ]
