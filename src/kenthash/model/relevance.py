"""How often a hit like this one is right: distances as a relevance between 0 and 1, which people read as per cent.

For a query with outputs q of K bits and an item whose code has the weighted Hamming distance d to it (see
`search.queries`), of full distance D = Σ|q_i|, in an index of N items:

    cosine    s = u (1 − 2d/D)              of q and the signs of the code
    sureness  u = |q|₁ / (√K |q|₂)          1 where the model is as sure of every bit, less where it hesitates
    size      n = log₁₀ N, N in 100..1000   the more items, the nearer is the nearest of the wrong ones

The relevance is the logistic function of a + b s + c u + e n, with four coefficients for each length of code and for
queries in words and by a picture. `calibration` fits them on items that the model was not trained on (Platt,
"Probabilistic outputs for support vector machines", 1999), and says there what right means.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import DataError, UsageError
from kenthash.files import read_json, write_json

FILE = "relevance.json"  # in a model folder; not among the files that decide the codes
FORMAT = 1
SIZES = (100, 1000)  # items: beyond these nothing was measured, and N counts as the nearer of them

QueryKind = Literal["words", "picture"]
Coefficients = tuple[float, float, float, float]  # a, b, c, e
Floats = NDArray[np.float64]


def features(queries: NDArray[Any], shares: NDArray[Any], items: int) -> Floats:
    """(s, u, n) [..., 3] of real-valued queries [Q, K], and of distances as shares of the full distance, d/D [Q, m]."""
    sizes = np.abs(np.asarray(queries, np.float64))
    lengths = np.maximum(np.linalg.norm(sizes, axis=1), np.finfo(np.float64).tiny)
    sureness = (sizes.sum(axis=1) / (np.sqrt(sizes.shape[1]) * lengths))[:, None]
    size = np.log10(np.clip(items, *SIZES))
    return np.stack(np.broadcast_arrays(sureness * (1 - 2 * shares), sureness, size), axis=-1)


def logistic(coefficients: Coefficients, values: Floats) -> Floats:
    logits = coefficients[0] + values @ np.array(coefficients[1:])
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -60, 60))))


@dataclass(frozen=True)
class Relevance:
    """What the file says: the coefficients by length of code and by what was asked with.

    Example (of codes of 8 bits, half of which differ, and none):

        >>> relevance = Relevance({8: {"words": (-4.0, 8.0, 0.0, 0.0)}}, "some photos", 500)
        >>> relevance.of_hits(np.ones((1, 8)), np.array([4, 0]), 8, 100, "words").round(2)
        array([0.02, 0.98])
    """

    coefficients: Mapping[int, Mapping[str, Coefficients]]
    data: str  # the name of what it was fitted on
    items: int

    @classmethod
    def read(cls, folder: Path) -> "Relevance | None":
        """That of a model folder; None where the model has none."""
        path = folder / FILE
        if not path.is_file():
            return None
        values = read_json(path)
        try:
            if values["format"] != FORMAT:
                raise ValueError("another version")
            fitted = {
                int(bits): {str(query_kind): _four(numbers) for query_kind, numbers in kinds.items()}
                for bits, kinds in values["coefficients"].items()
            }
            return cls(fitted, str(values["data"]), int(values["items"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{path}: not the relevance of a model ({error}): remove it, or make it again with `kenthash models "
                "calibrate`"
            ) from error

    def write(self, folder: Path) -> None:
        fitted = {str(bits): dict(kinds) for bits, kinds in self.coefficients.items()}
        write_json(folder / FILE, {"format": FORMAT, "data": self.data, "items": self.items, "coefficients": fitted})

    def of_hits(
        self, query: NDArray[Any], distances: NDArray[Any], full_distance: int, items: int, query_kind: QueryKind
    ) -> Floats | None:
        """The relevance [n] of the hits of one query: real-valued [1, K], or the signs of a code. `distances` and
        `full_distance` are those of `search.Hits`, `items` is the number of items in the index. Queries of several
        parts were not calibrated. None where the model was not calibrated for this."""
        if query.ndim != 2 or len(query) != 1 or query.dtype.kind == "u":
            raise UsageError(f"a query of shape {query.shape}, {query.dtype}: give real values [1, bits]")
        fitted = self.coefficients.get(query.shape[1], {}).get(query_kind)
        if fitted is None:
            return None
        shares = np.asarray(distances, np.float64)[None] / max(full_distance, 1)
        return np.asarray(logistic(fitted, features(query, shares, items))[0])


def _four(numbers: Any) -> Coefficients:
    a, b, c, e = (float(number) for number in numbers)
    if not np.isfinite([a, b, c, e]).all():
        raise ValueError("coefficients that are no numbers")
    return a, b, c, e
