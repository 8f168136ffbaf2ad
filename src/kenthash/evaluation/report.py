"""The result of an evaluation in one direction (say image to text), as JSON and as a table for a terminal."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kenthash.evaluation.inputs import Ties
from kenthash.evaluation.measures import BitUse, Group, Scores

DIRECTIONS = {
    "i2t": "image → text",
    "t2i": "text → image",
    "i2i": "image → image",
    "t2t": "text → text",
}


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


def render_table(evaluations: Mapping[str, Evaluation]) -> str:
    """One row per direction (keys "i2t", "t2i", "i2i", "t2t", or any name), then the conditions of the evaluation."""
    first = next(iter(evaluations.values()))
    ks = list(first.precision_at)
    k = 100 if 100 in ks else (ks[0] if ks else None)
    radius = max(first.precision_within, default=None)

    head = f"{'':<14}{'mAP':>7}  {'95 % interval':^15}"
    head += "" if k is None else f"{f'P@{k}':>9}{f'R@{k}':>9}{f'NDCG@{k}':>11}"
    head += "" if radius is None else f"{f'P(r≤{radius})':>10}"
    lines = [head, "─" * len(head)]
    for name, e in evaluations.items():
        low, high = e.map_interval
        line = f"{DIRECTIONS.get(name, name)[:14]:<14}{e.map:>7.4f}  {f'{low:.4f}–{high:.4f}':^15}"
        line += "" if k is None else f"{e.precision_at[k]:>9.4f}{e.recall_at[k]:>9.4f}{e.ndcg_at[k]:>11.4f}"
        line += "" if radius is None else f"{e.precision_within[radius]:>10.4f}"
        lines.append(line)
    lines += ["", *_notes(evaluations)]
    return "\n".join(lines)


def _notes(evaluations: Mapping[str, Evaluation]) -> list[str]:
    first = next(iter(evaluations.values()))
    sizes = f"{first.bits} bits · {first.queries:,} queries × {first.database:,} items"
    lines = [f"{sizes} · relevant: shares a label · ties: {first.ties}"]
    for name, e in evaluations.items():
        if e.excluded:
            lines.append(
                f"{DIRECTIONS.get(name, name)}: {e.excluded:,} queries without a relevant item left out"
                f" ({e.unlabelled:,} have no label)"
            )
    return lines
