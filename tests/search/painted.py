"""Small pictures, and a plain hash of them in place of a model."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from kenthash.data.pictures import BadPicture, Square, square_with_facts
from kenthash.model.hasher import EncodedFiles
from kenthash.search.folders.folder import IndexingReport


class AverageHash:
    """A plain picture hash of 64 bits, which counts what it was given."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, batches: Iterable[Sequence[Path]]) -> Iterator[EncodedFiles]:
        for files in batches:
            yield self.batch(files)

    def batch(self, files: Sequence[Path]) -> EncodedFiles:
        encoded = EncodedFiles(np.zeros((len(files), 8), np.uint8), [{} for _ in files], {})
        for place, file in enumerate(files):
            try:
                pixels, encoded.facts[place] = square_with_facts(file, Square(8))
            except BadPicture as error:
                encoded.bad[place] = error.reason
                continue
            grey = pixels.mean(axis=2).reshape(64)
            encoded.codes[place] = np.packbits(grey > grey.mean(), bitorder="little")
            self.seen += 1
        return encoded


def paint(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)).save(path)


def counts(report: IndexingReport) -> tuple[int, int, int, int]:
    return report.added, report.changed, report.unchanged, report.removed
