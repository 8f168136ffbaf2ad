"""Evaluate packed codes: `evaluate_codes` computes every measure, `map_of` the mAP alone, as after each epoch."""

from collections.abc import Sequence

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import UsageError
from kenthash.evaluation.histograms import Histograms, count_by_distance
from kenthash.evaluation.inputs import Labels, Retrieval, Ties, check_cutoffs, check_ties
from kenthash.evaluation.measures import (
    RECALL_LEVELS,
    Scores,
    average_precision,
    bit_use,
    by_class,
    by_label_count,
    hits_at,
    mean_ap,
    ndcg_at,
    precision_at_recall,
    within_radius,
)
from kenthash.evaluation.report import Evaluation
from kenthash.evaluation.significance import bootstrap_interval
from kenthash.evaluation.stable import stable_scores

KS = (10, 100, 1000)
RADII = (0, 1, 2)
CURVE = (1, 2, 5, 10, 20, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800, 900, 1000)  # N of the precision@N figure


def map_of(
    query_codes: Codes,
    database_codes: Codes,
    query_labels: Labels,
    database_labels: Labels,
    ties: Ties = "expected",
    k: int | None = None,
    exclude_self: bool = False,
    device: str = "cpu",
) -> float:
    """mAP@k (None: @ALL) over the queries that have a relevant item.

    Two items at distance 0, of which one is relevant, and a relevant one at distance 8:

        >>> query, database = np.uint8([[255]]), np.uint8([[255], [255], [0]])
        >>> query_labels, labels = np.array([[1, 0]]), np.array([[1, 0], [0, 1], [1, 0]])
        >>> data = query, database, query_labels, labels
        >>> [round(map_of(*data, ties), 4) for ties in ("optimistic", "expected", "pessimistic")]
        [0.8333, 0.7083, 0.5833]
    """
    return mean_ap(
        per_query_ap(query_codes, database_codes, query_labels, database_labels, ties, k, exclude_self, device)
    )


def per_query_ap(
    query_codes: Codes,
    database_codes: Codes,
    query_labels: Labels,
    database_labels: Labels,
    ties: Ties = "expected",
    k: int | None = None,
    exclude_self: bool = False,
    device: str = "cpu",
) -> Scores:
    """AP@k of each query, NaN for one without a relevant item.

    Example:

        >>> queries, database = np.uint8([[255], [0]]), np.uint8([[255], [1]])
        >>> per_query_ap(queries, database, np.array([[1, 0], [0, 0]]), np.array([[0, 1], [1, 0]]))
        array([0.5, nan])
    """
    check_ties(ties)
    check_cutoffs([] if k is None else [k])
    task = Retrieval(query_codes, database_codes, query_labels, database_labels, exclude_self)
    chunks = count_by_distance(task, device=device)
    parts = [_ranked(task, histograms, ties, [k], [], device)[0][:, 0] for histograms in chunks]
    return np.concatenate(parts)


def evaluate_codes(
    query_codes: Codes,
    database_codes: Codes,
    query_labels: Labels,
    database_labels: Labels,
    ks: Sequence[int] = KS,
    radii: Sequence[int] = RADII,
    ties: Ties = "expected",
    exclude_self: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> Evaluation:
    """Score a retrieval by packed codes in every measure.

    `ks` are the cut-offs of mAP, precision, recall and NDCG; positions past the end of the database count as
    irrelevant items. `seed` is that of the bootstrap.

    Example:

        >>> rng = np.random.default_rng(0)
        >>> codes, labels = rng.integers(0, 256, (50, 2), np.uint8), rng.integers(0, 2, (50, 4))
        >>> labels[:, 0] = 1
        >>> result = evaluate_codes(codes[:5], codes, labels[:5], labels, ks=[10])
        >>> round(result.map, 6), result.precision_at, result.queries, result.bits
        (1.0, {10: 1.0}, 5, 16)
    """
    check_ties(ties)
    check_cutoffs(ks)
    task = Retrieval(query_codes, database_codes, query_labels, database_labels, exclude_self)
    for radius in radii:
        if not 0 <= radius <= task.bits:
            raise UsageError(f"Hamming radius {radius}: choose from 0 to {task.bits}, the number of bits")
    grades = 1 + int((query_labels != 0).sum(axis=1).max())
    curve = [n for n in CURVE if n <= len(database_codes)]
    chunks = count_by_distance(task, max(grades, 2), device)
    parts = [_measure(task, histograms, ks, radii, curve, ties, device) for histograms in chunks]
    score = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    ap = score["ap"][:, 0]
    scored = ~np.isnan(ap)

    def mean(name: str, column: int) -> float:
        return float(score[name][scored, column].mean())

    def means(name: str, keys: Sequence[int], skip: int = 0) -> dict[int, float]:
        return {int(key): mean(name, i + skip) for i, key in enumerate(keys)}

    return Evaluation(
        bits=task.bits,
        ties=ties,
        map=mean_ap(ap),
        queries=int(scored.sum()),
        excluded=int((~scored).sum()),
        unlabelled=int((~query_labels.any(axis=1)).sum()),
        database=len(database_codes),
        map_interval=bootstrap_interval(ap, seed),
        map_at=means("ap", ks, skip=1),
        precision_at=means("precision", ks),
        recall_at=means("recall", ks),
        ndcg_at=means("ndcg", ks),
        precision_within=means("within", radii),
        empty_within=means("empty", radii),
        precision_curve=means("precision", curve, skip=len(ks)),
        recall_levels=RECALL_LEVELS,
        precision_at_recall=score["recall_curve"][scored].mean(axis=0),
        per_class=by_class(ap, query_labels),
        per_label_count=by_label_count(ap, query_labels),
        bit_use=bit_use(database_codes),
        per_query_ap=ap,
    )


def _measure(
    task: Retrieval,
    histograms: Histograms,
    ks: Sequence[int],
    radii: Sequence[int],
    curve: Sequence[int],
    ties: Ties,
    device: str,
) -> dict[str, Scores]:
    """Per-query scores of one chunk: columns of "ap" are @ALL then @ks, of "precision" @ks then @curve."""
    relevant, total = histograms.relevant, histograms.total
    cutoffs = [*ks, *curve]
    ap, hits = _ranked(task, histograms, ties, [None, *ks], cutoffs, device)
    within = [within_radius(relevant, total, radius) for radius in radii]
    everything = np.maximum(relevant.sum(axis=1), 1)
    return {
        "ap": ap,
        "precision": hits / np.array(cutoffs, np.float64),
        "recall": hits[:, : len(ks)] / everything[:, None],
        "ndcg": _columns(len(total), [ndcg_at(histograms.counts, k) for k in ks]),
        "within": _columns(len(total), [precision for precision, _ in within]),
        "empty": _columns(len(total), [retrieved == 0 for _, retrieved in within]),
        "recall_curve": precision_at_recall(relevant, total),
    }


def _ranked(
    task: Retrieval, histograms: Histograms, ties: Ties, ks: Sequence[int | None], cutoffs: Sequence[int], device: str
) -> tuple[Scores, Scores]:
    """(AP at `ks`, hits at `cutoffs`), each [q, columns], under a tie rule."""
    if ties == "stable":
        ap, hits = stable_scores(task, histograms, [*ks, *cutoffs], device)
        return ap[:, : len(ks)], hits[:, len(ks) :]
    relevant, total = histograms.relevant, histograms.total
    return (
        _columns(len(total), [average_precision(relevant, total, ties, k) for k in ks]),
        _columns(len(total), [hits_at(relevant, total, ties, k) for k in cutoffs]),
    )


def _columns(rows: int, columns: Sequence[Scores]) -> Scores:
    return np.column_stack([np.zeros((rows, 0)), *columns])  # also of no columns
