"""Splits: the rows to query with, to train and validate on, and to search in.

One permutation of the items by seed; query = its first part, train = the next, database = everything but the
query (so it contains train, as in the field). Protocol `honest` cuts a validation part off the end of train, which
is then not trained on; protocol `paper` trains on all of train and has no validation.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import DataError, UsageError
from kenthash.files import atomic_write, load_npz

Protocol = Literal["honest", "paper"]
PROTOCOLS: tuple[Protocol, ...] = ("honest", "paper")

Rows = NDArray[np.int64]

PARTS = ("query", "train", "validation", "database")

FIELD_QUERY, FIELD_TRAIN = 5_000, 10_000
# The smallest set on which the field takes 5,000 queries and 10,000 training items is MIRFLICKR-25K with 24,581.
FIELD_ITEMS = 22_500


@dataclass(frozen=True)
class Split:
    protocol: Protocol
    seed: int
    query: Rows
    train: Rows
    validation: Rows
    database: Rows

    def digest(self) -> str:
        """A short name of exactly this split, recorded with every figure made on it."""
        parts = (self.query, self.train, self.validation, self.database)
        return hashlib.sha256(b"|".join(p.astype("<i8").tobytes() for p in parts)).hexdigest()[:16]

    def save(self, path: Path) -> None:
        with atomic_write(path) as stream:
            np.savez(
                stream, protocol=self.protocol, seed=self.seed, query=self.query, train=self.train,
                validation=self.validation, database=self.database,
            )  # fmt: skip

    @property
    def items(self) -> int:
        """The number of items that were split, to be compared with the data that a loaded split is used on."""
        return len(self.query) + len(self.database)

    def validation_database(self) -> Rows:
        """The rows that validation items are ranked against: themselves, then training items in the share that these
        have of the database, so that what is best here is best there."""
        share = len(self.train) / max(len(self.database) - len(self.train), 1)
        return np.concatenate([self.validation, self.train[: round(share * len(self.validation))]])

    @classmethod
    def load(cls, path: Path) -> "Split":
        try:
            parts = load_npz(path)
            protocol = str(parts["protocol"])
            if protocol not in PROTOCOLS:
                raise ValueError(f"its protocol is {protocol!r}")
            rows = {name: parts[name] for name in PARTS}
            if any(part.ndim != 1 or part.dtype.kind != "i" for part in rows.values()):
                raise ValueError("its parts are not lists of row numbers")
            rows = {name: part.astype(np.int64) for name, part in rows.items()}
            split = cls(protocol=protocol, seed=int(parts["seed"]), **rows)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not a saved split: {error}") from error
        if fault := _fault(split):
            raise DataError(f"{path}: not a saved split: {fault}")
        return split


def _fault(split: Split) -> str:
    """What is wrong with the rows of a split, or nothing."""
    everyone = np.concatenate([split.query, split.database])
    if not np.array_equal(np.sort(everyone), np.arange(len(everyone))):
        return "query and database together are not every item once"
    learned = np.concatenate([split.train, split.validation])
    if len(np.unique(learned)) != len(learned):
        return "train and validation share items"
    if not np.isin(learned, split.database).all():
        return "train or validation have items that are not in the database"
    return ""


def default_sizes(items: int) -> tuple[int, int]:
    """(query, train): the field's 5,000 and 10,000, scaled down for sets that are too small for them.

    In small sets a tenth are queries and at most half are trained on; from 1,000 queries on, their number is rounded
    down to hundreds. 20,250 items give 2,000 and 10,000.
    """
    if items >= FIELD_ITEMS:
        return FIELD_QUERY, FIELD_TRAIN
    query = items // 10
    if query >= 1_000:
        query -= query % 100
    return query, min(FIELD_TRAIN, items // 2)


def make_split(
    items: int,
    seed: int,
    protocol: Protocol = "honest",
    query: int | None = None,
    train: int | None = None,
    validation: int | None = None,
) -> Split:
    """Split `items` rows. Sizes left None follow `default_sizes`; validation is a tenth of train.

    Example:

        >>> split = make_split(1000, seed=0)
        >>> len(split.query), len(split.train), len(split.validation), len(split.database)
        (100, 450, 50, 900)
    """
    if protocol not in PROTOCOLS:
        raise UsageError(f"protocol {protocol!r}: choose one of {', '.join(PROTOCOLS)}")
    if seed < 0:
        raise UsageError(f"seed {seed}: a seed is 0 or a positive whole number")
    default_query, default_train = default_sizes(items)
    q = default_query if query is None else query
    t = default_train if train is None else train
    v = 0 if protocol == "paper" else (t // 10 if validation is None else validation)
    if q < 1 or v < 0 or t - v < 1 or (protocol == "honest" and v < 1) or q + t > items:
        raise DataError(
            f"{items} items cannot be split into {q} queries and {t} training items, {v} of them for validation: "
            "use more items (at least 20) or give sizes that fit"
        )
    order = np.random.default_rng(seed).permutation(items)
    learn = order[q : q + t]
    return Split(
        protocol=protocol,
        seed=seed,
        query=order[:q],
        train=learn[: t - v],
        validation=learn[t - v :],
        database=order[q:],
    )
