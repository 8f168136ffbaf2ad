"""Shards of WebDataset: tar files in which the files of an item follow each other and share a name up to the first dot.

    000120031.jpg   000120031.txt   000120031.json

The picture is the first file that has a picture's suffix. `.txt` is its text; `.json`, an object, has other values,
`labels` among them, and `text`, `texts`, `caption` or `captions` where there is no `.txt`; `.cls` is one label.
img2dataset and the library webdataset write such files. Files with other suffixes are passed over.
"""

import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import PurePosixPath
from typing import IO, Any, Self

from kenthash.data.pictures import MAX_FILE
from kenthash.data.pictures import SUFFIXES as PICTURES
from kenthash.data.readers.samples import Sample, item_id, record_parts
from kenthash.errors import DataError
from kenthash.files import parse_json
from kenthash.storage import display_address, open_stored

MAX_RECORD = 1 << 20  # bytes of a text or a JSON file
RECORDS = (".txt", ".json", ".cls")


@dataclass(frozen=True)
class TarShard:
    name: str
    state: str
    address: str

    def samples(self) -> Iterator[Sample]:
        with open_stored(self.address) as stream:
            for key, members in groupby(_members(stream, self.address), key=lambda member: member.key):
                sample = _sample(item_id(f"{self.name}/{key}"), list(members))
                if sample is not None:
                    yield sample


class _Header(tarfile.TarInfo):
    """The header of a file. The standard library takes a missing or damaged one for the end of the archive, so that a
    shard which was not fetched whole would pass for a shorter one; here only the end is the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not any(buf):  # two empty blocks are the end
                raise
            raise tarfile.ReadError(str(error)) from error


@dataclass(frozen=True)
class _Member:
    key: str  # the name up to the first dot after the last slash
    suffix: str  # the last one
    content: bytes = field(repr=False)  # empty where it is too large


def _members(stream: IO[bytes], address: str) -> Iterator[_Member]:
    """The files of a tar file that are read, in order."""
    try:
        options: Any = {"encoding": "utf-8", "errors": "surrogateescape", "tarinfo": _Header}
        with tarfile.open(fileobj=stream, mode="r|*", **options) as archive:
            for info in archive:
                path = PurePosixPath(info.name)
                stem, _, extension = path.name.partition(".")
                suffix = path.suffix.lower()
                if not info.isfile() or not stem or not extension or suffix not in (*PICTURES, *RECORDS):
                    continue
                limit = MAX_RECORD if suffix in RECORDS else MAX_FILE
                file = archive.extractfile(info) if info.size <= limit else None
                content = file.read() if file is not None else b""
                yield _Member((path.parent / stem).as_posix(), suffix, content)
                archive.members = []  # type: ignore[attr-defined]  # or it would keep what it knows of every file
    except (tarfile.TarError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())[:100]
        raise DataError(
            f"{display_address(address)}: damaged, or not a whole tar file ({reason}): fetch it again"
        ) from error


def _sample(id: str, members: list[_Member]) -> Sample | None:
    """One item; None where it has no picture. A picture that is too large is left to the decoder to refuse."""
    picture = next((member.content for member in members if member.suffix in PICTURES), None)
    if picture is None:
        return None
    record: dict[str, Any] = {}
    for member in members:
        text = member.content.decode(errors="replace").strip() if member.suffix in RECORDS else ""
        if member.suffix == ".json":
            record = _record(text) | record
        elif member.suffix == ".txt" and text:
            record["texts"] = [text]
        elif member.suffix == ".cls" and text:
            record.setdefault("labels", [text])
    texts, labels, metadata = record_parts(record)
    return Sample(id, picture, texts, labels, metadata)


def _record(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
