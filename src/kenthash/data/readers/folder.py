"""A folder of pictures with `metadata.jsonl`, after the habit of Hugging Face's ImageFolder.

    {"file_name": "street/a.jpg", "text": "two dogs and a kite", "labels": ["dog", "kite"]}

`file_name` is relative to the metadata file, whose folder may have folders. `text` is a string; `texts`, a list of
strings. `labels` is a list of strings, or one label as a string. Other keys are ignored. Without a metadata file in the
folder itself, those in folders below it are read (train/, test/ ...). `metadata.csv` with the columns file_name, text
and labels (separated by semicolons) is read where there is no .jsonl. `classes.json`, a list of names, fixes the
classes and their order; else they are sorted labels.
"""

import csv
import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from kenthash.data.dataset import Dataset
from kenthash.data.pictures import SUFFIXES
from kenthash.data.readers.source import inside, multi_hot, note
from kenthash.errors import DataError
from kenthash.files import parse_json, read_json, reading

NAMES = ("metadata.jsonl", "metadata.csv")
MAX_LINE = 1 << 20  # characters of a metadata line
_SEPARATOR = re.compile(r"[,;|\[\]]")
LOOK = 20_000  # entries looked at before a folder is said to have no pictures


def first_picture(path: Path) -> Path | None:
    return next((file for file in islice(path.rglob("*"), LOOK) if file.suffix.lower() in SUFFIXES), None)


@dataclass
class _Rows:
    """What has been read so far, and what was wrong with other rows (each with its file and line)."""

    ids: list[str] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)
    texts: list[list[str]] = field(default_factory=list)
    labels: list[list[str]] = field(default_factory=list)
    nameless: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)


def read_folder(path: Path) -> Dataset:
    files = metadata_files(path)
    if not files:
        example = first_picture(path)
        name = example.relative_to(path).as_posix() if example else "a.jpg"
        row = {"file_name": name, "text": "two dogs and a kite", "labels": ["dog", "kite"]}
        raise DataError(f"{path}: pictures without metadata.jsonl: write one with a line a picture: {json.dumps(row)}")
    rows, listed = _Rows(), _listed_classes(path)
    for file in files:
        fence = _Fence(file.parent)
        for line, row in read_rows(file):
            _add(rows, path, file, line, row, fence, listed or ())
    if not rows.ids:
        raise DataError(f"{files[0]}: no row has a picture that is here, such as {(rows.missing or ['none'])[0]}")

    used = sorted({name for names in rows.labels for name in names})
    classes = used if listed is None else listed
    unknown = sorted(set(used) - set(classes))
    columns = {name: column for column, name in enumerate(classes)}
    silent = [item for item, texts in zip(rows.ids, rows.texts, strict=True) if not any(texts)]
    remarks = [
        ("rows left out, no picture file", rows.missing),
        ("rows left out, no file_name in them", rows.nameless),
        ("rows whose text or labels are not strings, taken without them", rows.strange),
        ("labels left out, not in classes.json", unknown),
        ("items without a text", silent if len(silent) < len(rows.ids) else []),
    ]
    return Dataset(
        name=path.name,
        ids=rows.ids,
        labels=multi_hot([[columns[name] for name in names if name in columns] for names in rows.labels], len(classes)),
        classes=classes,
        pictures=rows.pictures,
        texts=rows.texts if len(silent) < len(rows.ids) else None,
        notes=[note(what, which) for what, which in remarks if which],
    )


def _add(rows: _Rows, root: Path, file: Path, line: int, row: Any, fence: "_Fence", classes: Collection[str]) -> None:
    where = f"{file.relative_to(root)}:{line}"
    name = row.get("file_name") if isinstance(row, dict) else None
    if not isinstance(name, str) or not name or "\n" in name or "\r" in name:
        rows.nameless.append(where)
        return
    if not inside(name):
        raise DataError(f"{file}:{line}: file_name {name!r} leads out of the folder: use a path below it")
    picture = file.parent / name
    there = fence.check(picture)
    if there is None:
        rows.missing.append(f"{where} {name}")
        return
    if not there:
        raise DataError(f"{file}:{line}: file_name {name!r} is a link out of the folder: copy the picture here")
    texts, labels = _strings(row.get("texts") or row.get("text")), _strings(row.get("labels"))
    if texts is None or labels is None:
        rows.strange.append(where)
    rows.ids.append(picture.relative_to(root).as_posix())
    rows.pictures.append(picture)
    rows.texts.append(texts or [""])
    if labels and labels[0] not in classes:
        _refuse_several_in_one(file, line, row["labels"])
    rows.labels.append([name for name in labels or [] if name.strip()])


def _refuse_several_in_one(file: Path, line: int, labels: str | list[str]) -> None:
    """Refuse one string that has several labels in it, where one label may be a string."""
    from_csv = file.suffix == ".csv"  # whose labels `read_rows` has split at semicolons
    text = labels[0] if from_csv and len(labels) == 1 else labels
    if not isinstance(text, str) or not _SEPARATOR.search(text):
        return
    names = [name for part in _SEPARATOR.split(text) if (name := part.strip(" '\""))]
    if from_csv:
        advice = f"{text!r}: separate them by semicolons, {';'.join(names)}, or list this name in classes.json"
    else:
        written, one = json.dumps(names, ensure_ascii=False), json.dumps(text, ensure_ascii=False)
        advice = f"{one} is one string: write a list, {written}, or [{one}] if it is the name of one class"
    raise DataError(f"{file}:{line}: labels {advice}")


class _Fence:
    """Whether pictures are inside a folder, links followed. A folder is resolved once, not once a picture."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.folders: dict[Path, bool] = {}

    def check(self, picture: Path) -> bool | None:
        """True inside, False outside, None where there is no such file."""
        try:
            kind = os.lstat(picture).st_mode
            if stat.S_ISLNK(kind):
                return picture.resolve(strict=True).is_relative_to(self.root) if picture.is_file() else None
        except OSError:
            return None
        if not stat.S_ISREG(kind):
            return None
        folder = picture.parent
        if folder not in self.folders:
            self.folders[folder] = folder.resolve().is_relative_to(self.root)
        return self.folders[folder]


def _strings(value: Any) -> list[str] | None:
    """A string or a list of strings as a list; nothing as an empty list; anything else as None."""
    if value is None:
        return []
    values = [value] if isinstance(value, str) else value
    return values if isinstance(values, list) and all(isinstance(one, str) for one in values) else None


def _listed_classes(path: Path) -> list[str] | None:
    if not (path / "classes.json").is_file():
        return None
    listed = read_json(path / "classes.json")
    if not isinstance(listed, list) or _strings(listed) is None or len(set(listed)) != len(listed):
        raise DataError(f"{path / 'classes.json'}: must be a list of names, each once")
    return listed


def metadata_files(path: Path) -> list[Path]:
    """The metadata of the folder itself, or those of its folders (train/, test/ ...) and theirs."""
    for depth in ("", "*/", "*/*/"):
        for name in NAMES:
            if found := sorted(path.glob(depth + name)):
                return found
    return []


def read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line, row) for each row of a metadata file; a line that cannot be parsed is an error that names it.

    A row of a .jsonl is whatever JSON value stands there. A row of a .csv has `file_name`, `text` and `labels`, which
    are separated by semicolons.
    """
    return _csv(path) if path.suffix == ".csv" else _jsonl(path)


def _lines(path: Path) -> Iterator[str]:
    """Lines with their ends, as CSV wants them."""
    with reading(path), path.open(encoding="utf-8-sig", newline="") as stream:
        number = 1
        while line := stream.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE:
                raise DataError(f"{path}:{number}: a line of more than {MAX_LINE:,} characters")
            yield line
            number += 1


def _jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{number}: not valid JSON: {error.msg} at column {error.colno}") from error
        except ValueError as error:  # a number of too many digits, brackets nested too deep
            raise DataError(f"{path}:{number}: not valid JSON: {error}") from error
        yield number, row


def _csv(path: Path) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(_lines(path), strict=True, skipinitialspace=True)
    try:
        columns = reader.fieldnames or ()
        if "file_name" not in columns:
            raise DataError(f"{path}:1: no column file_name: the first line must name the columns")
        for row in reader:
            if any(surplus := row.pop(None, [])):
                values = len(columns) + len(surplus)
                raise DataError(
                    f"{path}:{reader.line_num}: {values} values, but {len(columns)} columns: put a value with commas "
                    "into double quotes, and separate labels by semicolons"
                )
            labels = [name.strip() for name in (row.get("labels") or "").split(";") if name.strip()]
            yield reader.line_num, {"file_name": row["file_name"], "text": row.get("text"), "labels": labels}
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not valid CSV: {error}") from error
