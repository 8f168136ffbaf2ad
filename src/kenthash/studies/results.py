"""The figures of a comparison: per method, length and direction, over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kenthash.errors import DataError
from kenthash.evaluation import PairedTest, SeedTest, holm, paired_test, seed_test
from kenthash.evaluation.measures import Scores
from kenthash.files import load_npz, read_json

SIGNIFICANT = 0.05
TIES = "expected"
ROUNDED = 1e-5  # more than metrics.json rounds a figure by
DIRECTIONS = {"i2t": "image → text", "t2i": "text → image"}
MEAN = "mean"  # of both directions


@dataclass(frozen=True)
class Cell:
    """One method at one length in one direction. Figures by shared labels and of own pairs stand beside each other and
    are never mixed; where the data has no labels, there are no `maps`. Without per-query scores (a real-valued control)
    it is not tested."""

    maps: tuple[float, ...]  # one per seed
    real: tuple[float, ...] = ()  # the same outputs before signing
    ap: Scores | None = None  # per query, seeds one after another
    recalls: dict[int, tuple[float, ...]] = field(default_factory=dict)  # recall@k of own pairs by k, one per seed

    @property
    def mean(self) -> float:
        return _mean(self.maps)

    @property
    def deviation(self) -> float:
        return _deviation(self.maps)

    @property
    def real_mean(self) -> float:
        return _mean(self.real)

    def recall_mean(self, k: int) -> float:
        return _mean(self.recalls.get(k, ()))

    def recall_deviation(self, k: int) -> float:
        return _deviation(self.recalls.get(k, ()))

    def text(self, bold: bool = False) -> str:
        """mAP: the mean, with its deviation where there are several seeds."""
        if not self.maps:
            return ""
        text = f"{self.mean:.4f}" + (f" ± {self.deviation:.4f}" if len(self.maps) > 1 else "")
        return f"**{text}**" if bold else text

    def recall_text(self, k: int) -> str:
        """Recall@k of own pairs in per cent."""
        values = self.recalls.get(k, ())
        if not values:
            return ""
        mean, deviation = 100 * self.recall_mean(k), 100 * self.recall_deviation(k)
        return f"{mean:.1f}" + (f" ± {deviation:.1f}" if len(values) > 1 else "")


def _mean(values: Sequence[float] | Scores) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


Cells = dict[tuple[str, int], Cell]  # by (direction, bits)


@dataclass(frozen=True)
class Row:
    name: str
    reference: str
    fidelity: str
    cells: Cells


def cells_of(runs: Mapping[int, Sequence[Path]]) -> Cells:
    """The cells of one method: its runs by length, one per seed."""
    return {
        (direction, bits): _cell(of_seeds, direction) for direction in DIRECTIONS for bits, of_seeds in runs.items()
    }


def both_directions(cells: Cells, bits: int) -> float:
    """mAP at a length, mean of image → text and text → image, and of seeds."""
    return float(np.mean(by_seed(cells, bits)))


def by_seed(cells: Cells, bits: int) -> list[float]:
    """mAP at a length, mean of both directions, of each seed."""
    return [float(np.mean(maps)) for maps in zip(*(cells[d, bits].maps for d in DIRECTIONS), strict=True)]


def with_mean(cells: Cells) -> Cells:
    """The cells, and of each length that has both directions their mean, seed by seed, as the direction `MEAN`."""
    pairs = {b: [cells.get((direction, b)) for direction in DIRECTIONS] for _, b in cells}
    means = {(MEAN, b): mean_cell([cell for cell in pair if cell]) for b, pair in pairs.items() if all(pair)}
    return cells | means


def mean_cell(pair: Sequence[Cell]) -> Cell:
    """The mean of both directions of each seed. It has no scores by query and is not tested."""
    ks = set.intersection(*(set(cell.recalls) for cell in pair))
    return Cell(
        maps=_means([cell.maps for cell in pair]),
        real=_means([cell.real for cell in pair]),
        recalls={k: _means([cell.recalls[k] for cell in pair]) for k in sorted(ks)},
    )


def _means(of_directions: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(float(np.mean(values)) for values in zip(*of_directions, strict=True))


def _cell(runs: Sequence[Path], direction: str) -> Cell:
    metrics = [read_json(run / "metrics.json") for run in runs]
    for run, m in zip(runs, metrics, strict=True):
        if m["ties"] != TIES:
            raise DataError(
                f"{run}: was evaluated with {m['ties']} ties: evaluate it again with `kenthash evaluate {run}`"
            )
    figures = [m[direction] for m in metrics]
    by_labels = all("map" in figure for figure in figures)
    own = [figure.get("instance_recall", {}) for figure in figures]  # runs of earlier versions have none
    shared_ks = set.intersection(*(set(recall) for recall in own)) if own else set()
    return Cell(
        maps=tuple(figure["map"] for figure in figures) if by_labels else (),
        real=tuple(m["real_valued_map"][direction] for m in metrics if m.get("real_valued_map")),  # submissions: none
        ap=np.concatenate(
            [_per_query(run, direction, figure["map"]) for run, figure in zip(runs, figures, strict=True)]
        )
        if by_labels
        else None,
        recalls={int(k): tuple(recall[k] for recall in own) for k in sorted(shared_ks, key=int)},
    )


def _per_query(run: Path, direction: str, mean: float) -> Scores:
    """The scores of each query, NaN where nothing is relevant to it; of the others `metrics.json` has the mean."""
    path = run / "per_query_ap.npz"
    try:
        scores = load_npz(path)[direction]
        if scores.ndim != 1 or scores.dtype.kind != "f" or not abs(_mean(scores[~np.isnan(scores)]) - mean) < ROUNDED:
            raise ValueError(f"the mean of {direction} is not the mAP of metrics.json")
        return scores
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{path}: not the scores of a run: {error}; write them again with `kenthash evaluate {run}`"
        ) from error


def winners(rows: Sequence[Row]) -> dict[tuple[str, int], str]:
    """Of each column, the name of the best code, if it is ahead of every other, corrected for their number (Holm).

    The test is over seeds where there are enough of them to tell, else over the queries of all seeds, and then it only
    says something of these trained models (`basis_of_test`). A best that some other code ties with wins nothing: the
    column has no bold figure. Real values are no codes and play no part.
    """
    won: dict[tuple[str, int], str] = {}
    for column in sorted({column for row in rows for column in row.cells}):
        cells = {row.name: row.cells[column] for row in rows if column in row.cells}
        tested = {name: cell for name, cell in cells.items() if cell.ap is not None}
        if len(tested) > 1:
            best = max(tested, key=lambda name: tested[name].mean)
            tests = [_test(tested[best], cell, len(tested) - 1) for name, cell in tested.items() if name != best]
            if all(p < SIGNIFICANT for p in holm([test.p_value for test in tests])):
                won[column] = best
    return won


def basis_of_test(rows: Sequence[Row]) -> str:
    """What bold means in a table of these rows, by which test; nothing where no two codes can be compared."""
    coded = [row for row in rows if any(cell.ap is not None for cell in row.cells.values())]
    if len(coded) < 2:
        return ""
    seeds = min((len(cell.maps) for row in coded for cell in row.cells.values()), default=0)
    if enough_seeds(seeds, len(coded) - 1):
        return f"ahead of every other code by the paired test over {seeds} seeds (p < {SIGNIFICANT}, Holm)"
    return (
        f"these models are ahead of every other code by the paired test over queries (p < {SIGNIFICANT}, Holm); "
        "that is no test of the methods, which needs more seeds"
    )


def enough_seeds(seeds: int, rivals: int) -> bool:
    """Whether a lead with every seed would be significant against so many rivals."""
    return max(rivals, 1) * 2.0 ** (1 - seeds) < SIGNIFICANT


def _test(a: Cell, b: Cell, rivals: int) -> PairedTest | SeedTest:
    if len(a.maps) == len(b.maps) and enough_seeds(len(a.maps), rivals):
        return seed_test(a.maps, b.maps)
    assert a.ap is not None and b.ap is not None
    return paired_test(a.ap, b.ap)
