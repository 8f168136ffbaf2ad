"""Which epoch's number is reported. The two protocols are never mixed.

honest   the epoch that is best on a validation part cut from train; its model is then scored once on the query set
paper    the best image-to-text and the best text-to-image score over all epochs *on the query set*, each from its own
         epoch, as the field reports it: an upper end, chosen with knowledge of the answers
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kenthash.errors import DataError


@dataclass(frozen=True)
class EpochScore:
    """mAP after one epoch, on the validation part (honest) or on the query set (paper); without labels, recall@10 of
    own pairs."""

    epoch: int
    i2t: float
    t2i: float
    score: float  # what epochs are compared by under honest


@dataclass(frozen=True)
class PaperNumber:
    """Best of each direction on the query set; no single model need have reached both."""

    i2t: float
    i2t_epoch: int
    t2i: float
    t2i_epoch: int


def honest_epoch(validation: Sequence[EpochScore]) -> int:
    """The epoch with the best score on validation; the earliest of equals."""
    return _best(validation, lambda score: score.score).epoch


def paper_number(query: Sequence[EpochScore]) -> PaperNumber:
    """The field's number, from scores of every epoch on the query set."""
    i2t = _best(query, lambda score: score.i2t)
    t2i = _best(query, lambda score: score.t2i)
    return PaperNumber(i2t.i2t, i2t.epoch, t2i.t2i, t2i.epoch)


def _best(scores: Sequence[EpochScore], value: Callable[[EpochScore], float]) -> EpochScore:
    usable = [score for score in scores if value(score) == value(score)]  # NaN is not equal to itself
    if not usable:
        raise DataError(f"none of {len(scores)} epochs has a score to choose by")
    return max(usable, key=lambda score: (value(score), -score.epoch))
