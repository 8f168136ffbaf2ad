"""The one table that every reader fills: items with an id, a picture, texts and labels."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import DataError


@dataclass(frozen=True)
class DataProblem:
    """One thing that is wrong, and what to do about it. A data set with an error cannot be used as it is."""

    kind: Literal["error", "warning"]
    what: str
    remedy: str
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Dataset:
    """N items of C classes.

    `pictures` and `texts` are None where the source has none (a feature pack has only vectors, and its texts are
    optional). An item has any number of texts: five captions of a COCO photo, the tags of a Flickr photo joined by
    spaces, none or an empty one where the source says nothing of it. `labels` is multi-hot; C may be 0, and rows of
    zeros are items whose labels are not known. Ids become lines of `ids.txt`, so a line break in an id is refused.
    """

    name: str
    ids: list[str]
    labels: NDArray[np.uint8]  # [N, C]
    classes: list[str]
    pictures: list[Path] | None = None
    texts: list[list[str]] | None = None
    licence: str = ""
    notes: list[str] = field(default_factory=list)  # what the reader left out by design, one line each
    problems: list[DataProblem] = field(default_factory=list)  # what the reader found wrong

    def __post_init__(self) -> None:
        n = len(self.ids)
        if n == 0:
            raise DataError(f"{self.name}: there are no items")
        if self.labels.ndim != 2 or self.labels.dtype != np.uint8:
            raise DataError(
                f"{self.name}: labels must be uint8 [items, classes], not {self.labels.dtype} {self.labels.shape}"
            )
        parts = (("labels", len(self.labels)), ("pictures", _size(self.pictures)), ("texts", _size(self.texts)))
        for part, size in parts:
            if size is not None and size != n:
                raise DataError(f"{self.name}: {n} ids but {size} rows of {part}")
        if self.labels.shape[1] != len(self.classes):
            raise DataError(
                f"{self.name}: labels have {self.labels.shape[1]} columns but there are {len(self.classes)} class names"
            )
        if self.labels.max(initial=0) > 1:
            raise DataError(f"{self.name}: labels must be 0 or 1, found {self.labels.max()}")
        for row, item in enumerate(self.ids):
            if not item or "\n" in item or "\r" in item:
                raise DataError(f"{self.name}: id {item!r} of item {row} is empty or has a line break")

    def __len__(self) -> int:
        return len(self.ids)

    def captions(self) -> list[list[str]]:
        """Of each item the texts that say anything."""
        return [[text for text in texts if text.strip()] for texts in self.texts or [[]] * len(self)]

    def digest(self) -> str:
        """A short name of exactly these items, labels and classes, recorded with every figure made on them.

        Example:

            >>> Dataset("one", ["a.jpg"], np.ones((1, 1), np.uint8), ["dog"]).digest()
            '125b8f52d647ed77'
        """
        digest = hashlib.sha256(self.labels.tobytes())
        for names in (self.ids, self.classes):
            digest.update(json.dumps(names, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:16]


def _size(part: list[Path] | list[list[str]] | None) -> int | None:
    return None if part is None else len(part)
