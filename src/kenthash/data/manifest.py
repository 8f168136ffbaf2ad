"""`manifest.jsonl`: the record of a job that works on shards, in the folder of its results.

The first line says what the job is, each line after it that a shard is finished, and the last that all are. Lines are
only ever added, and one is flushed to disk after the result that it tells of: so a job that was interrupted goes on
with the shards that are missing, and what reads the results knows whether they are complete.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kenthash.errors import DataError, UsageError
from kenthash.files import parse_json, reading, sync_folder

NAME = "manifest.jsonl"
CODES = "kenthash codes 1"  # the kind of job that makes codes


@dataclass(frozen=True)
class ShardRecord:
    """A finished shard."""

    shard: str  # its name
    state: str  # of its content when it was read
    file: str  # of its result, below the folder of the manifest
    items: int
    skipped: dict[str, int] = field(default_factory=dict)  # how many items could not be used, by reason


class Manifest:
    """The record of one job. One process at a time may write it (see `files.alone`)."""

    def __init__(self, folder: Path, about: dict[str, Any], remarks: dict[str, Any] | None = None) -> None:
        """Open the manifest of this job, or begin one, with remarks on it. What is there of another job is refused."""
        self.path = folder / NAME
        self.finished: dict[str, ShardRecord] = {}
        if self.path.exists():
            known, self.finished, _ = read_manifest(folder)
            for key, value in about.items():
                if known.get(key) != value:
                    raise UsageError(
                        f"{folder}: holds the results of another job ({key} was {known.get(key)!r}, is {value!r}): "
                        "choose another name, or remove it first"
                    )
            self._drop_torn_line()
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self._append(about | (remarks or {}))
            sync_folder(folder)

    def has(self, shard: str, state: str) -> bool:
        """Whether this shard is finished, in this state, and its result is still there."""
        record = self.finished.get(shard)
        return record is not None and record.state == state and (self.path.parent / record.file).is_file()

    def add(self, record: ShardRecord) -> None:
        self._append(asdict(record))
        self.finished[record.shard] = record

    def complete(self, shards: Iterable[str]) -> None:
        """Say that the job has these shards, which are all finished. Those of earlier calls that are not among them any
        more are forgotten."""
        self.finished = {name: self.finished[name] for name in shards}
        items = sum(record.items for record in self.finished.values())
        self._append({"complete": sorted(self.finished), "items": items})

    def _append(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _drop_torn_line(self) -> None:
        content = self.path.read_bytes()
        if not content.endswith(b"\n"):
            with self.path.open("r+b") as stream:
                stream.truncate(content.rfind(b"\n") + 1)


def read_manifest(folder: Path) -> tuple[dict[str, Any], dict[str, ShardRecord], bool]:
    """What the job is, its finished shards by name, and whether these are all."""
    path = folder / NAME
    with reading(path):
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # what follows the last end of a line was cut
    about: dict[str, Any] = {}
    finished: dict[str, ShardRecord] = {}
    complete = False
    names = {part.name for part in fields(ShardRecord)}
    for number, line in enumerate(lines, start=1):
        try:
            value = parse_json(line)
            if number == 1:
                about = dict(value)
            elif "complete" in value:
                finished, complete = {name: finished[name] for name in value["complete"]}, True
            elif value.keys() == names and _is_below(value["file"]):
                finished[value["shard"]], complete = ShardRecord(**value), False
            else:
                raise ValueError("it is no record of a shard")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{path}:{number}: not a line of a manifest: {error}") from error
    if not about:
        raise DataError(f"{path}: is empty: remove it")
    return about, finished, complete


def _is_below(file: str) -> bool:
    return not file.startswith("/") and ".." not in file.split("/")
