"""Readers: one per format, and `read_dataset`, which recognises a format by what is in the folder."""

from pathlib import Path

from kenthash.data.dataset import Dataset
from kenthash.data.pack import is_pack, read_pack
from kenthash.data.readers.coco import is_coco, read_coco
from kenthash.data.readers.folder import NAMES, first_picture, metadata_files, read_folder
from kenthash.data.readers.mat import is_mat, read_mat
from kenthash.data.readers.mirflickr import is_mirflickr, read_mirflickr
from kenthash.data.readers.nuswide import is_nuswide, read_nuswide
from kenthash.errors import DataError
from kenthash.files import expand, reading


def read_dataset(path: Path) -> Dataset:
    """Read the data set in a folder, whichever of the known layouts it has.

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
    path = expand(path).absolute()  # so that the folder "." has a name and a parent, too
    with reading(path):  # looking for files can fail, too: the name is too long, or the folder may not be read
        return _read_known(path)


def _read_known(path: Path) -> Dataset:
    if not path.is_dir():
        hint = "is a file: give the folder that holds the data" if path.is_file() else "there is no such folder"
        raise DataError(f"{path}: {hint}")
    if is_pack(path):
        return read_pack(path)
    if any((path / name).is_file() for name in NAMES):
        return read_folder(path)
    if is_coco(path):
        return read_coco(path)
    if is_mirflickr(path):
        return read_mirflickr(path)
    if is_mat(path):
        return read_mat(path)
    if is_nuswide(path):
        return read_nuswide(path)
    if metadata_files(path) or first_picture(path):
        return read_folder(path)  # without any metadata it refuses, and shows what metadata.jsonl looks like
    raise DataError(
        f"{path}: no known data set: looked for metadata.jsonl (picture folder), meta.json with ids.txt "
        "(feature pack), annotations/instances_*2017.json (COCO), im*.jpg with meta/tags (MIRFLICKR-25K), "
        "index.mat and label.mat, ImageList/Imagelist.txt (NUS-WIDE)"
    )
