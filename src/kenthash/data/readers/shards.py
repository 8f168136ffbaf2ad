"""Data sets in shards: WebDataset's tar files (as img2dataset writes them) and Parquet files, read as a stream.

A shard is read from its beginning to its end and never unpacked, so that it may lie anywhere (see `storage`) and be
larger than memory. It is the unit of work: what encodes or hashes a data set goes shard by shard, keeps the results of
those that are finished, and may share them out among machines.

An item's id is the name of its shard and its key in there, `train/00012/000120031`, whichever other shards are read.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath

from kenthash.data.dataset import Dataset
from kenthash.data.pictures import SUFFIXES as PICTURES
from kenthash.data.readers.folder import first_picture
from kenthash.data.readers.parquet import ParquetShard
from kenthash.data.readers.samples import Sample, Shard
from kenthash.data.readers.shared import multi_hot
from kenthash.data.readers.webdataset import TarShard
from kenthash.errors import DataError
from kenthash.files import expand
from kenthash.storage import absolute, display_address, expand_braces, is_address, list_stored

TARS, PARQUETS = (".tar", ".tar.gz", ".tgz"), (".parquet",)
LISTED = 1024  # items per shard of a data set that has none of its own
LOOKED_AT = 10_000  # files of a folder, before it is said to have no shards


def is_sharded(data: str) -> bool:
    """Whether `data` names shards: by its form; or it is a folder with Parquet files, or with tar files and without
    pictures. Compressed archives in a folder may be anything: a pattern names them, such as `shards/*.tar.gz`."""
    if is_address(data) or next(expand_braces(data)).lower().endswith(TARS + PARQUETS):
        return True
    folder = expand(Path(data))
    if not folder.is_dir():
        return False
    suffixes = {file.suffix.lower() for file in islice(folder.iterdir(), LOOKED_AT)}
    shards = suffixes & {".tar", ".parquet"}
    if not shards:
        shards = {file.suffix.lower() for file in islice(folder.glob("*/*"), LOOKED_AT)} & {".tar", ".parquet"}
    return not suffixes & PICTURES if ".parquet" in shards else bool(shards) and first_picture(folder) is None


def find_shards(data: str) -> list[Shard]:
    """The shards of a data set, in the order of their names. Where there are tar files, Parquet files beside them are
    img2dataset's records of what it fetched, and not read."""
    files = list_stored(data, TARS + PARQUETS)
    tars = [file for file in files if not file.address.lower().endswith(PARQUETS)]
    if not files:
        raise DataError(
            f"{display_address(data)}: no shards here: looked for {', '.join('*' + end for end in TARS + PARQUETS)}"
        )
    names = _names([file.address for file in tars or files])
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise DataError(f"{display_address(data)}: {times} shards are called {name}: rename them")
    kind = TarShard if tars else ParquetShard
    return [kind(name, file.state, file.address) for name, file in zip(names, tars or files, strict=True)]


def _names(addresses: list[str]) -> list[str]:
    """Paths below the folder that all of them share, without suffixes."""
    paths = [PurePosixPath(display_address(address)) for address in addresses]
    root = paths[0].parent
    while not all(path.is_relative_to(root) for path in paths):
        root = root.parent
    names = [path.relative_to(root).as_posix() for path in paths]
    return [name[: -len(next(end for end in TARS + PARQUETS if name.lower().endswith(end)))] for name in names]


@dataclass(frozen=True)
class ListedShard:
    """A stretch of rows of a data set whose pictures are files of their own."""

    name: str
    state: str
    items: tuple[Sample, ...]

    def samples(self) -> Iterator[Sample]:
        for sample in self.items:
            if isinstance(sample.picture, Path) and not sample.picture.exists():  # perhaps only on this machine
                raise DataError(f"{sample.picture}: there is no such file")
            yield sample


def listed_shards(dataset: Dataset, digests: Sequence[str]) -> list[Shard]:
    """A data set with picture files as shards of LISTED items. `digests` are those of the pictures, "" of one that
    cannot be read, which is left out."""
    if dataset.pictures is None:
        raise DataError(f"{dataset.name}: has no pictures")
    shards: list[Shard] = []
    for start in range(0, len(dataset), LISTED):
        rows = [row for row in range(start, min(start + LISTED, len(dataset))) if digests[row]]
        items = [
            Sample(
                dataset.ids[row],
                dataset.pictures[row].absolute(),
                [text for text in dataset.texts[row] if text.strip()] if dataset.texts else [],
                [dataset.classes[column] for column in dataset.labels[row].nonzero()[0].tolist()],
            )
            for row in rows
        ]
        content = [[digests[row], item.id, item.texts, item.labels] for row, item in zip(rows, items, strict=True)]
        state = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
        shards.append(ListedShard(f"{start:09d}", state, tuple(items)))
    return shards


def read_sharded(data: str) -> Dataset:
    """The items of all shards as a table, without the pictures, which stay where they are."""
    ids: list[str] = []
    texts: list[list[str]] = []
    labels: list[list[str]] = []
    for shard in find_shards(data):
        for sample in shard.samples():
            ids.append(sample.id)
            texts.append(sample.texts)
            labels.append(sample.labels)
    dataset = labelled_table(PurePosixPath(display_address(absolute(data))).name, ids, texts, labels)
    return dataset if any(texts) else replace(dataset, texts=None)


def pictures_in_shards(data: str) -> Iterator[bytes | Path]:
    """The pictures of `read_sharded`'s items, in the same order."""
    return (sample.picture for shard in find_shards(data) for sample in shard.samples())


def labelled_table(
    name: str,
    ids: list[str],
    texts: list[list[str]],
    labels: list[list[str]],
    classes: list[str] | None = None,
    licence: str = "",
) -> Dataset:
    """A data set of these classes, or of the labels that occur, in sorted order."""
    if classes is None:
        classes = sorted({label for names in labels for label in names})
    columns = {label: column for column, label in enumerate(classes)}
    rows = multi_hot([[columns[label] for label in names] for names in labels], len(classes))
    return Dataset(name, ids, rows, classes, texts=texts, licence=licence)
