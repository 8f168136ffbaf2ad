"""Finished batches of an encoding that may be killed at any moment.

`PACK.partial/FINGERPRINT/` has one file per batch, named by its rows; each appears whole, by a rename. Another job
(other items, another encoder) has another key and does not see them. The batch size may change in between:
rows count, not batches.
"""

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import DataError
from kenthash.files import atomic_write, load_npz

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FinishedBatch:
    """What became of the rows `start` to `stop`."""

    start: int
    stop: int
    rows: NDArray[np.int64]  # those that were encoded
    image: NDArray[np.float16]  # [rows, Di]
    text: NDArray[np.float16]  # [texts of these rows, Dt]
    skipped: dict[int, str]  # the others: row -> reason


def save_batch(folder: Path, batch: FinishedBatch) -> None:
    with atomic_write(folder / f"{batch.start:09d}-{batch.stop:09d}.npz") as stream:
        np.savez(
            stream, rows=batch.rows, image=batch.image, text=batch.text,
            skipped=np.array(list(batch.skipped), np.int64), reasons=np.array(list(batch.skipped.values()), np.str_),
        )  # fmt: skip


def load_batch(file: Path) -> FinishedBatch:
    start, stop = map(int, file.stem.split("-"))
    try:
        parts = load_npz(file)
    except ValueError as error:
        raise DataError(f"{file}: cannot be read: {error}: run the command again") from error
    skipped = dict(zip(parts["skipped"].tolist(), parts["reasons"].tolist(), strict=True))
    return FinishedBatch(start, stop, parts["rows"], parts["image"], parts["text"], skipped)


def finished(folder: Path) -> list[Path]:
    """The batches that are there, in the order of their rows. A damaged one is removed, to be made again."""
    files = sorted(folder.glob("*-*.npz"))
    intact = []
    for file in files:
        try:
            load_batch(file)
            intact.append(file)
        except (DataError, ValueError, KeyError):
            log.warning("%s: damaged, its batch is encoded again", file)
            file.unlink()
    return intact


def gaps(files: list[Path], items: int) -> Iterator[tuple[int, int]]:
    """The stretches of rows that no batch has."""
    at = 0
    for file in files:
        start, stop = map(int, file.stem.split("-"))
        if at < start:
            yield at, start
        at = stop
    if at < items:
        yield at, items


def discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
