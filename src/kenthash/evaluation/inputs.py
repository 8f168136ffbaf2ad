"""The inputs of an evaluation: packed codes and multi-hot labels of queries and database, checked once.

Only packed uint8 codes are accepted. Real outputs (floats, or ±1 as integers) are refused, so that a network output
that was not signed can never be scored as a code; `real_valued.real_valued_map` scores those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, check_bits
from kenthash.errors import DataError, UsageError

Labels = NDArray[Any]  # [N, C], bool or integer, 0 or 1

Ties = Literal["expected", "optimistic", "pessimistic", "stable"]
TIES: tuple[Ties, ...] = get_args(Ties)


@dataclass(frozen=True)
class Retrieval:
    """Queries against a database. With `exclude_self`, query i is database item i and does not find itself."""

    query_codes: Codes
    database_codes: Codes
    query_labels: Labels
    database_labels: Labels
    exclude_self: bool = False

    def __post_init__(self) -> None:
        check_codes("query", self.query_codes)
        check_codes("database", self.database_codes)
        query_bits, database_bits = 8 * self.query_codes.shape[1], 8 * self.database_codes.shape[1]
        if query_bits != database_bits:
            raise DataError(
                f"query codes have {query_bits} bits but database codes have {database_bits}: "
                "encode both with the same model"
            )
        check_labels(self.query_labels, self.database_labels, len(self.query_codes), len(self.database_codes))
        if self.exclude_self:
            check_same_items(len(self.query_codes), len(self.database_codes))

    @property
    def bits(self) -> int:
        return 8 * int(self.query_codes.shape[1])


def check_codes(side: str, codes: Codes) -> None:
    if not isinstance(codes, np.ndarray) or codes.dtype != np.uint8 or codes.ndim != 2:
        kind = f"{codes.dtype} {codes.shape}" if isinstance(codes, np.ndarray) else type(codes).__name__
        raise UsageError(
            f"{side} codes must be packed uint8 [items, bits/8], not {kind}: "
            "sign and pack outputs with kenthash.codes.pack"
        )
    if len(codes) == 0:
        raise DataError(f"there are no {side} codes: an evaluation needs at least one item on each side")
    check_bits(8 * codes.shape[1])


def check_labels(query: Labels, database: Labels, queries: int, items: int) -> None:
    for side, labels, rows in (("query", query, queries), ("database", database, items)):
        if not isinstance(labels, np.ndarray) or labels.ndim != 2 or labels.dtype.kind not in "bui":
            kind = f"{labels.dtype} {labels.shape}" if isinstance(labels, np.ndarray) else type(labels).__name__
            raise UsageError(f"{side} labels must be a multi-hot integer array [items, classes], not {kind}")
        if len(labels) != rows:
            raise DataError(f"there are {rows} {side} items but {len(labels)} rows of {side} labels")
        if labels.size and (labels.max() > 1 or labels.min() < 0):
            raise DataError(f"{side} labels must be 0 or 1, found values from {labels.min()} to {labels.max()}")
    if query.shape[1] != database.shape[1]:
        raise DataError(
            f"query labels have {query.shape[1]} classes but database labels have {database.shape[1]}: "
            "both sides need the same classes in the same order"
        )
    if query.shape[1] == 0:
        raise DataError("labels have no classes: relevance means sharing at least one")


def check_same_items(queries: int, items: int) -> None:
    if queries != items:
        raise UsageError(
            f"exclude_self takes query i as database item i, but there are {queries} queries and {items} items"
        )


def check_ties(ties: str) -> None:
    if ties not in TIES:
        raise UsageError(f"tie rule {ties!r}: choose one of {', '.join(TIES)}")


def check_cutoffs(ks: Sequence[int]) -> None:
    for k in ks:
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
            raise UsageError(f"cut-off {k!r}: k must be a whole number from 1 on")
