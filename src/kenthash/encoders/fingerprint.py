"""What makes two encodings the same: the items and the encoder."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from kenthash.data.dataset import Dataset
from kenthash.data.pictures import PIPELINE
from kenthash.errors import DataError


def picture_items(dataset: Dataset) -> tuple[list[Path], list[list[str]]]:
    """The pictures, and of each item the texts that say anything. Refuses a set that has no pictures or texts."""
    for part, there in (("pictures", dataset.pictures), ("texts", dataset.texts)):
        if there is None:
            raise DataError(f"{dataset.name}: has no {part}: only a set with pictures and texts can be encoded")
    assert dataset.pictures is not None and dataset.texts is not None
    return dataset.pictures, [[text for text in texts if text.strip()] for texts in dataset.texts]


def fingerprint(dataset: Dataset, encoder: str) -> str:
    """Of ids, labels, texts, the pictures' sizes in bytes, and the encoder's name.

    Sizes and not times, since a copy of the data is the same data; not whole files, since that would read them all.
    """
    pictures, texts = picture_items(dataset)
    digest = hashlib.sha256()
    for part in (PIPELINE, encoder, dataset.classes, dataset.ids, texts, list(_sizes(pictures))):
        digest.update(json.dumps(part).encode() + b"\n")
    digest.update(dataset.labels.tobytes())
    return digest.hexdigest()[:32]


def _sizes(pictures: list[Path]) -> Iterator[int]:
    for picture in pictures:
        try:
            yield picture.stat().st_size
        except OSError:
            yield -1
