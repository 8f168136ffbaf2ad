"""The metadata files of a picture folder, row by row: `metadata.jsonl`, or `metadata.csv` where there is no .jsonl."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kenthash.errors import DataError
from kenthash.files import parse_json, reading

NAMES = ("metadata.jsonl", "metadata.csv")
MAX_LINE = 1 << 20  # characters of a metadata line


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
    reader = csv.DictReader(_lines(path), strict=True)
    try:
        if "file_name" not in (reader.fieldnames or ()):
            raise DataError(f"{path}:1: no column file_name: the first line must name the columns")
        for row in reader:
            labels = [name.strip() for name in (row.get("labels") or "").split(";") if name.strip()]
            yield reader.line_num, {"file_name": row["file_name"], "text": row.get("text"), "labels": labels}
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not valid CSV: {error}") from error
