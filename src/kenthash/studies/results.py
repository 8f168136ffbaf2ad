"""The figures of a comparison: per method, length and direction, over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kenthash.evaluation import paired_test
from kenthash.evaluation.ranking import Scores
from kenthash.files import read_json

SIGNIFICANT = 0.05
DIRECTIONS = ("i2t", "t2i")


@dataclass(frozen=True)
class Cell:
    """One method at one length in one direction. Without per-query scores (a real-valued control) it is not tested."""

    maps: tuple[float, ...]  # one a seed
    real: tuple[float, ...] = ()  # the same outputs before signing
    ap: Scores | None = None  # per query, seeds one after another

    @property
    def mean(self) -> float:
        return float(np.mean(self.maps))

    @property
    def deviation(self) -> float:
        return float(np.std(self.maps, ddof=1)) if len(self.maps) > 1 else 0.0


@dataclass(frozen=True)
class Row:
    name: str
    reference: str
    fidelity: str
    cells: dict[tuple[str, int], Cell]  # by (direction, bits)


def cell_of(runs: Sequence[Path], direction: str) -> Cell:
    """The cell of one method's runs, one a seed."""
    metrics = [read_json(run / "metrics.json") for run in runs]
    ap = np.concatenate([np.load(run / "per_query_ap.npz")[direction] for run in runs])
    return Cell(
        maps=tuple(m[direction]["map"] for m in metrics),
        real=tuple(m["real_valued_map"][direction] for m in metrics),
        ap=ap,
    )


def winners(rows: Sequence[Row]) -> dict[tuple[str, int], str]:
    """Of each column, the name of the best row, if it is ahead of every other by the paired test on per-query AP.

    A best that some other row ties with wins nothing: the column has no bold figure.
    """
    won: dict[tuple[str, int], str] = {}
    for column in sorted({column for row in rows for column in row.cells}):
        tested = [(row.name, row.cells[column]) for row in rows if column in row.cells]
        name, best = max(tested, key=lambda entry: entry[1].mean)
        if best.ap is None:
            continue
        rivals = [cell for other, cell in tested if other != name and cell.ap is not None]
        if all(_ahead(best.ap, cell.ap) for cell in rivals if cell.ap is not None):
            won[column] = name
    return won


def _ahead(a: Scores, b: Scores) -> bool:
    test = paired_test(a, b)
    return test.difference > 0 and test.p_value < SIGNIFICANT
