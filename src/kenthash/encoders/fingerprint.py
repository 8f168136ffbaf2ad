"""What makes two encodings the same: the items and the encoder."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from kenthash.data.changes import FileRecord
from kenthash.data.dataset import Dataset
from kenthash.data.pictures import PIPELINE
from kenthash.errors import DataError
from kenthash.files import cache_folder


def picture_items(dataset: Dataset) -> tuple[list[Path], list[list[str]]]:
    """The pictures, and of each item the texts that say anything. Refuses a set that has no pictures or texts."""
    for part, there in (("pictures", dataset.pictures), ("texts", dataset.texts)):
        if there is None:
            raise DataError(f"{dataset.name}: has no {part}: only a set with pictures and texts can be encoded")
    assert dataset.pictures is not None and dataset.texts is not None
    return dataset.pictures, [[text for text in texts if text.strip()] for texts in dataset.texts]


def fingerprint(dataset: Dataset, encoder: str) -> str:
    """Of ids, labels, texts, the pictures' content, and the encoder's name.

    Content and not times, since a copy of the data is the same data. Pictures whose size and time are as they were when
    they were last read are not read again (see `changes`).
    """
    pictures, _ = picture_items(dataset)
    return _digest(dataset, encoder, PIPELINE, FileRecord(cache_folder() / "files.sqlite").digests(pictures))


def earlier_fingerprint(dataset: Dataset, encoder: str) -> str:
    """As packs of version 0.1.0 have it, which knew pictures by their sizes."""
    pictures, _ = picture_items(dataset)
    return _digest(dataset, encoder, 1, [file.stat().st_size if file.is_file() else -1 for file in pictures])


def _digest(dataset: Dataset, encoder: str, version: int | str, pictures: Sequence[int | str]) -> str:
    _, texts = picture_items(dataset)
    digest = hashlib.sha256()
    for part in (version, encoder, dataset.classes, dataset.ids, texts, pictures):
        digest.update(json.dumps(part).encode() + b"\n")
    digest.update(dataset.labels.tobytes())
    return digest.hexdigest()[:32]
