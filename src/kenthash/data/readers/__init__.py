"""Readers: one per format, and `read_dataset`, which recognises a format by what is in the folder."""

from collections.abc import Callable
from pathlib import Path

from kenthash.data.dataset import Dataset
from kenthash.data.pack import is_pack, read_pack
from kenthash.data.readers.coco import is_coco, read_coco
from kenthash.data.readers.folder import NAMES, first_picture, metadata_files, read_folder, read_pictures
from kenthash.data.readers.mat import is_mat, read_mat
from kenthash.data.readers.mirflickr import is_mirflickr, read_mirflickr
from kenthash.data.readers.nuswide import is_nuswide, read_nuswide
from kenthash.data.readers.shards import is_sharded, read_sharded
from kenthash.errors import DataError
from kenthash.files import HALF, expand, reading
from kenthash.storage import is_address


def read_dataset(data: Path | str, needs_metadata: bool = True) -> Dataset:
    """Read the data set in a folder, whichever of the known layouts it has. Shards may also be at an address. A folder
    of pictures alone, without metadata.jsonl, is read only where that is enough (`needs_metadata=False`).

    Example:

        >>> from tempfile import TemporaryDirectory
        >>> row = '{"file_name": "a.jpg", "text": "a kite", "labels": ["kite"]}'
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.jpg").write_bytes(b"")
        ...     _ = Path(folder, "metadata.jsonl").write_text(row)
        ...     dataset = read_dataset(Path(folder))
        >>> dataset.ids, dataset.texts, dataset.classes
        (['a.jpg'], [['a kite']], ['kite'])
    """
    if isinstance(data, str) and is_address(data):
        return read_sharded(data)
    path = expand(Path(data)).absolute()  # so that the folder "." has a name and a parent, too
    with reading(path):  # looking for files can fail, too: the name is too long, or the folder may not be read
        dataset = _read_known(path, needs_metadata)
    if needs_metadata:  # `hash`, which needs none, skips single pictures
        for item in dataset.ids:
            if HALF.search(item):
                raise DataError(f"{path}: {item!r} is not UTF-8: rename this file or folder")
    return dataset


def reads_shards(data: Path | str) -> bool:
    """Whether `read_dataset` would read shards here."""
    if isinstance(data, str) and is_address(data):
        return True
    path = expand(Path(data)).absolute()
    with reading(path):
        return _reader_of(path) is _read_shards


def _read_known(path: Path, needs_metadata: bool) -> Dataset:
    reader = _reader_of(path)
    if reader is read_folder and not needs_metadata and not metadata_files(path):
        return read_pictures(path)
    if reader is not None:
        return reader(path)
    if not path.is_dir():
        hint = "is a file: give the folder that holds the data" if path.is_file() else "there is no such folder"
        raise DataError(f"{path}: {hint}")
    raise DataError(
        f"{path}: no known data set: looked for metadata.jsonl (picture folder), meta.json with ids.txt "
        "(feature pack), annotations/instances_*2017.json (COCO), im*.jpg with meta/tags (MIRFLICKR-25K), "
        "index.mat and label.mat, ImageList/Imagelist.txt (NUS-WIDE), *.tar or *.parquet (shards)"
    )


def _reader_of(path: Path) -> Callable[[Path], Dataset] | None:
    """What reads a folder: formats are asked in this order, the more special ones first."""
    readers: list[tuple[Callable[[Path], object], Callable[[Path], Dataset]]] = [
        (is_pack, read_pack),
        (lambda folder: any((folder / name).is_file() for name in NAMES), read_folder),
        (is_coco, read_coco),
        (is_mirflickr, read_mirflickr),
        (is_mat, read_mat),
        (is_nuswide, read_nuswide),
        (lambda folder: is_sharded(str(folder)), _read_shards),
        # Without any metadata it refuses, and shows what metadata.jsonl looks like.
        (lambda folder: metadata_files(folder) or first_picture(folder), read_folder),
    ]
    if not path.is_dir():  # one shard, or a pattern
        return _read_shards if is_sharded(str(path)) else None
    return next((reader for fits, reader in readers if fits(path)), None)


def _read_shards(path: Path) -> Dataset:
    return read_sharded(str(path))
