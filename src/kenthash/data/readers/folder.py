"""A folder of pictures with `metadata.jsonl`, as Hugging Face's ImageFolder has it.

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

from kenthash.data.dataset import DataProblem, Dataset
from kenthash.data.pictures import SUFFIXES
from kenthash.data.readers.shared import inside, multi_hot, note, without_pictures
from kenthash.errors import DataError
from kenthash.files import parse_json, read_json, reading

NAMES = ("metadata.jsonl", "metadata.csv")
MAX_LINE = 1 << 20  # characters of a metadata line
MAX_ENTRIES = 20_000  # looked at before a folder is said to have no pictures
MAX_KEYS = 8  # of a row, in a message

# What other formats call the keys that are read here, in lower case and without punctuation.
_SYNONYMS = {
    "file_name": {"file", "filepath", "image", "imagefile", "imagename", "imagepath", "img", "path", "photo"},
    "text": {"texts", "caption", "captions", "description", "sentence", "sentences"},
    "labels": {"label", "category", "categories", "class", "classes"},
}
_SEPARATOR = re.compile(r"[,;|\[\]]")


def first_picture(path: Path) -> Path | None:
    return next((file for file in islice(path.rglob("*"), MAX_ENTRIES) if file.suffix.lower() in SUFFIXES), None)


def read_pictures(path: Path) -> Dataset:
    """The pictures below a folder that has no metadata: enough to hash them, not to train on."""
    files = [file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file()]
    below = {file.relative_to(path): file for file in files}
    visible = sorted(name for name in below if not any(part.startswith(".") for part in name.parts))
    ids = [name.as_posix() for name in visible]
    return Dataset(path.name, ids, multi_hot([()] * len(ids), 0), [], pictures=[below[name] for name in visible])


@dataclass
class _Rows:
    """What has been read so far, and what was wrong with other rows (each with its file and line)."""

    ids: list[str] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)
    texts: list[list[str]] = field(default_factory=list)
    labels: list[list[str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    nameless: list[str] = field(default_factory=list)
    why_nameless: str = ""  # the first of them, as an error
    not_strings: list[str] = field(default_factory=list)
    misnamed: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # (key that is there, key that is read)


def read_folder(path: Path) -> Dataset:
    files = metadata_files(path)
    if not files:
        picture = first_picture(path)
        example = _example(picture.relative_to(path).as_posix() if picture else "a.jpg")
        raise DataError(
            f"{path}: pictures without metadata.jsonl: they can be searched at once, with `kenthash index add {path}`; "
            f"training needs texts or labels: write them to metadata.jsonl, one line per picture: {example}"
        )
    rows, listed = _Rows(), _listed_classes(path)
    for file in files:
        fence = _Fence(file.parent)
        for line, row in read_rows(file):
            _add(rows, path, file, line, row, fence, listed or ())
    problems = _problems(path if len(files) > 1 else files[0], rows)

    used = sorted({name for names in rows.labels for name in names})
    classes = used if listed is None else listed
    columns = {name: column for column, name in enumerate(classes)}
    without_text = [item for item, texts in zip(rows.ids, rows.texts, strict=True) if not any(texts)]
    remarks = [
        ("labels left out, not in classes.json", [name for name in used if name not in columns]),
        ("items without a text", without_text if len(without_text) < len(rows.ids) else []),
    ]
    return Dataset(
        name=path.name,
        ids=rows.ids,
        labels=multi_hot([[columns[name] for name in names if name in columns] for names in rows.labels], len(classes)),
        classes=classes,
        pictures=rows.pictures,
        texts=rows.texts if len(without_text) < len(rows.ids) else None,
        notes=[note(what, which) for what, which in remarks if which],
        problems=problems,
    )


def _example(name: str) -> str:
    return json.dumps({"file_name": name, "text": "two dogs and a kite", "labels": ["dog", "kite"]}, ensure_ascii=False)


def _problems(where: Path, rows: _Rows) -> list[DataProblem]:
    """What is wrong with the rows as warnings; where no picture or only a few are left, an error is raised."""
    if not rows.ids and not rows.missing:
        raise DataError(rows.why_nameless or f"{where}: has no rows: write one line per picture: {_example('a.jpg')}")
    advice = "copy the pictures here, or correct file_name, which is relative to the folder of the metadata file"
    if any("\\" in name for name in rows.missing):
        advice += "; write / and not \\ between folders"
    listed = len(rows.ids) + len(rows.missing)
    problems = without_pictures(where, "rows left out, no picture file", rows.missing, listed, advice)
    if rows.nameless:
        what = f"rows left out, no file_name in them: {len(rows.nameless):,}"
        problems.append(DataProblem("warning", what, 'name the picture of each row with "file_name"', rows.nameless))
    if rows.not_strings:
        what = f"rows whose text or labels are not strings, taken without them: {len(rows.not_strings):,}"
        remedy = 'write "text" as a string and "labels" as a list of strings, also where a label is a number: ["3"]'
        problems.append(DataProblem("warning", what, remedy, rows.not_strings))
    for (key, wanted), places in rows.misnamed.items():
        what = f"rows with {_quoted(key)} and no {_quoted(wanted)}: {len(places):,}; it is not read"
        problems.append(DataProblem("warning", what, f"rename it to {_quoted(wanted)}", places))
    return problems


def _add(rows: _Rows, root: Path, file: Path, line: int, row: Any, fence: "_Fence", classes: Collection[str]) -> None:
    where = f"{file.relative_to(root)}:{line}"
    name = row.get("file_name") if isinstance(row, dict) else None
    if not isinstance(name, str) or not name or "\n" in name or "\r" in name:
        rows.nameless.append(where)
        rows.why_nameless = rows.why_nameless or f"{file}:{line}: {_why_nameless(row)}"
        return
    if not inside(name):
        kind = "is absolute and may lead" if name.startswith("/") else "leads"
        raise DataError(f"{file}:{line}: file_name {name!r} {kind} out of the folder: use a path relative to this file")
    picture = file.parent / name
    is_inside = fence.check(picture)
    if is_inside is None:
        rows.missing.append(f"{where} {name}")
        return
    if not is_inside:
        raise DataError(f"{file}:{line}: file_name {name!r} is a link out of the folder: copy the picture here")
    texts, labels = _strings(row.get("texts") or row.get("text")), _strings(row.get("labels"))
    if texts is None or labels is None:
        rows.not_strings.append(where)
    for wanted, values in (("text", texts), ("labels", labels)):
        if values == [] and (key := _synonym(row, wanted)):
            rows.misnamed.setdefault((key, wanted), []).append(where)
    if labels and labels[0] not in classes:
        _refuse_several_in_one(file, line, row["labels"])
    rows.ids.append(picture.relative_to(root).as_posix())
    rows.pictures.append(picture)
    rows.texts.append(texts or [""])
    rows.labels.append([name for name in labels or [] if name.strip()])


def _why_nameless(row: Any) -> str:
    if not isinstance(row, dict):
        return f"not a JSON object such as {_example('a.jpg')}"
    if "file_name" in row:
        return f"file_name {str(row['file_name'])[:60]!r} is not the name of a picture"
    key = _synonym(row, "file_name")
    advice = f'rename {_quoted(key)} to "file_name"' if key else 'name the picture of each row with "file_name"'
    return f'no "file_name"{_only(row)}: {advice}'


def _synonym(row: Collection[str], wanted: str) -> str | None:
    """A key of the row that is spelt otherwise but probably means the same."""
    spellings = {wanted.replace("_", ""), *_SYNONYMS[wanted]}
    return next((key for key in row if key != wanted and re.sub(r"[\W_]", "", key.lower()) in spellings), None)


def _only(keys: Collection[str]) -> str:
    quoted = [*map(_quoted, islice(keys, MAX_KEYS)), *(["..."] if len(keys) > MAX_KEYS else [])]
    return f", only {', '.join(quoted)}" if quoted else ""


def _quoted(text: str) -> str:
    return json.dumps(text[:60], ensure_ascii=False)


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
        as_list, as_string = json.dumps(names, ensure_ascii=False), json.dumps(text, ensure_ascii=False)
        advice = f"{as_string} is one string: write a list, {as_list}, or [{as_string}] if it is the name of one class"
    raise DataError(f"{file}:{line}: labels {advice}")


class _Fence:
    """Whether pictures are inside a folder, links followed. A folder is resolved once, not for each picture."""

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
    return values if isinstance(values, list) and all(isinstance(text, str) for text in values) else None


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
            if files := sorted(path.glob(depth + name)):
                return files
    return []


def read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line, row) for each row of a metadata file; a line that cannot be parsed is an error that names it.

    A row of a .jsonl is any JSON value. A row of a .csv has its columns as strings, and `labels`, which are separated
    by semicolons, as a list.
    """
    return _csv(path) if path.suffix == ".csv" else _jsonl(path)


def _lines(path: Path) -> Iterator[str]:
    """Lines with their ends, which the csv module needs."""
    with reading(path), path.open(encoding="utf-8-sig", newline="") as stream:
        number = 1
        while line := stream.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE:
                raise DataError(f"{path}:{number}: a line of more than {MAX_LINE:,} characters")
            yield line
            number += 1


def _jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    with reading(path), path.open(encoding="utf-8-sig") as stream:
        if stream.read(1000).lstrip().startswith("["):
            raise DataError(
                f"{path}: is one JSON array: write each object on a line of its own, without the brackets around them "
                "and the commas between them"
            )
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except json.JSONDecodeError as error:
            reason = f"{error.msg} at column {error.colno}"
            if error.pos >= len(line.rstrip()):
                reason = "the object does not end on this line: write each object on one line"
            raise DataError(f"{path}:{number}: not valid JSON: {reason}") from error
        except ValueError as error:  # a number of too many digits, brackets nested too deep
            raise DataError(f"{path}:{number}: not valid JSON: {error}") from error
        yield number, row


def _csv(path: Path) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(_lines(path), strict=True, skipinitialspace=True)
    try:
        columns = reader.fieldnames or ()
        if "file_name" not in columns:
            raise DataError(f"{path}:1: {_why_no_column(columns)}")
        for row in reader:
            if any(surplus := row.pop(None, [])):
                fault = f"{len(columns) + len(surplus)} values, but {len(columns)} columns"
                advice = "put a value with commas into double quotes, and separate labels by semicolons"
                raise DataError(f"{path}:{reader.line_num}: {fault}: {advice}")
            named: dict[str, Any] = {column: value for column, value in row.items() if column and value is not None}
            if "labels" in named:
                named["labels"] = [name.strip() for name in named["labels"].split(";") if name.strip()]
            yield reader.line_num, named
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not valid CSV: {error}") from error


def _why_no_column(columns: Collection[str]) -> str:
    key = _synonym(columns, "file_name")
    if key:
        advice = f'rename {_quoted(key)} to "file_name"'
    elif len(columns) == 1 and re.search(r"[;\t|]", next(iter(columns))):
        advice = "columns are separated by commas"
    else:
        advice = 'the first line names the columns, such as "file_name,text,labels"'
    return f'no column "file_name"{_only(columns)}: {advice}'
