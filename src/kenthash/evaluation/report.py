"""The result of an evaluation in one direction (say image to text), and its form in JSON."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kenthash.evaluation.bits import BitUse
from kenthash.evaluation.breakdown import Group
from kenthash.evaluation.inputs import Ties
from kenthash.evaluation.ranking import Scores


@dataclass(frozen=True)
class Evaluation:
    """Means over the queries that have at least one relevant item; `excluded` counts the others.

    AP, precision@k and recall@k follow the tie rule `ties`; NDCG and the precision-recall curve are expectations over
    ties under every rule. Mappings are keyed by k, by N or by Hamming radius. `per_query_ap` keeps the order of the
    queries, NaN where one is excluded: it is what `paired_test` compares.
    """

    bits: int
    ties: Ties
    queries: int  # scored
    excluded: int  # without a relevant item
    unlabelled: int  # of the excluded: without any label
    database: int
    map: float
    map_interval: tuple[float, float]  # 95 % bootstrap over queries
    map_at: dict[int, float]
    precision_at: dict[int, float]
    recall_at: dict[int, float]
    ndcg_at: dict[int, float]
    precision_within: dict[int, float]  # by Hamming radius; a query that finds nothing counts as 0
    empty_within: dict[int, float]  # share of queries that find nothing
    precision_curve: dict[int, float]  # precision@N by N
    recall_levels: Scores
    precision_at_recall: Scores
    per_class: list[Group]
    per_label_count: dict[int, Group]
    bit_use: BitUse  # of the database codes
    per_query_ap: Scores

    def to_json(self) -> dict[str, Any]:
        """Everything but the per-query scores, as JSON values: NaN (no such query) is null, keys are strings."""
        value = asdict(self)
        del value["per_query_ap"]
        plain: dict[str, Any] = _plain(value)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(entry) for entry in value]
    if isinstance(value, float | np.floating):
        return None if math.isnan(value) else round(float(value), 6)
    return value
