"""What cannot be scored is refused with one line, or left out and counted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from slow_retrieval import Data, make

from kenthash.codes import pack
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.evaluation import evaluate_codes, map_of
from kenthash.evaluation.real_valued import real_valued_map

QUERY, DATABASE, QUERY_LABELS, LABELS = make(0, 10, 20, 16, 4)


@pytest.mark.parametrize("score", [map_of, evaluate_codes])
@pytest.mark.parametrize(
    "outputs",
    [
        np.tanh(np.random.default_rng(0).standard_normal((10, 16))),
        np.tanh(np.random.default_rng(0).standard_normal((10, 16))).astype(np.float16),
        np.sign(np.random.default_rng(0).standard_normal((10, 16))),
        np.sign(np.random.default_rng(0).standard_normal((10, 16))).astype(np.int8),
        np.sign(np.random.default_rng(0).standard_normal((10, 16))).astype(np.int64),
        np.ones((10, 16), bool),
    ],
    ids=["tanh", "half", "signs", "int8", "int64", "bool"],
)
def test_outputs_that_nobody_packed_cannot_be_scored(score: Callable[..., object], outputs: np.ndarray) -> None:
    for query, database in ((outputs, DATABASE), (QUERY, outputs), (outputs, outputs), (outputs[:, :2], DATABASE)):
        with pytest.raises(UsageError, match="must be packed uint8"):
            score(query, database, QUERY_LABELS, LABELS[: len(database)])
    with pytest.raises(UsageError, match=r"packed uint8 .*, not list"):
        score(outputs.tolist(), DATABASE, QUERY_LABELS, LABELS)


def test_scaling_outputs_cannot_change_a_score() -> None:
    """A public code base signs only outputs beyond ±1; here the size of an output never matters."""
    outputs = np.random.default_rng(1).standard_normal((30, 16))
    small, large = pack(0.01 * outputs), pack(100 * outputs)
    scores = {map_of(c[:10], c[10:], QUERY_LABELS, LABELS) for c in (small, large)}
    assert len(scores) == 1


def no_rows(array: np.ndarray) -> np.ndarray:
    return array[:0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((QUERY[:, :1], DATABASE, QUERY_LABELS, LABELS), "query codes have 8 bits but database codes have 16"),
        ((QUERY, DATABASE, QUERY_LABELS[:, :3], LABELS), "query labels have 3 classes but database labels have 4"),
        ((QUERY, no_rows(DATABASE), QUERY_LABELS, no_rows(LABELS)), "there are no database codes"),
        ((no_rows(QUERY), DATABASE, no_rows(QUERY_LABELS), LABELS), "there are no query codes"),
        ((QUERY, DATABASE, QUERY_LABELS, LABELS[:7]), "20 database items but 7 rows"),
        ((QUERY, DATABASE, QUERY_LABELS * 0.5, LABELS), "query labels must be a multi-hot integer array .* float64"),
        ((QUERY, DATABASE, QUERY_LABELS, LABELS * 3), "labels must be 0 or 1"),
        ((QUERY, DATABASE, QUERY_LABELS, LABELS[:, 0]), "must be a multi-hot integer array"),
        ((QUERY, DATABASE, QUERY_LABELS[:, :0], LABELS[:, :0]), "no classes"),
        ((QUERY, DATABASE, 0 * QUERY_LABELS, LABELS), "none of the 10 queries shares a label"),
        ((QUERY[0], DATABASE, QUERY_LABELS, LABELS), "packed uint8"),
    ],
)
def test_parts_that_disagree(arguments: Data, message: str) -> None:
    for score in (map_of, evaluate_codes):
        with pytest.raises(KenthashError, match=message) as error:
            score(*arguments)
        assert "\n" not in str(error.value)


def test_options_that_do_not_exist() -> None:
    data = QUERY, DATABASE, QUERY_LABELS, LABELS
    wrong: Any = "random"
    with pytest.raises(UsageError, match="tie rule 'random'"):
        map_of(*data, ties=wrong)
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(UsageError, match="cut-off"):
            map_of(*data, k=wrong)
    with pytest.raises(UsageError, match="radius 17"):
        evaluate_codes(*data, radii=(17,))
    with pytest.raises(UsageError, match="10 queries and 20 items"):
        map_of(*data, exclude_self=True)


def test_rows_without_labels_are_left_out_and_counted() -> None:
    labels, query_labels = LABELS.copy(), QUERY_LABELS.copy()
    query_labels[:, 0] = labels[0, 0] = 1
    whole = evaluate_codes(QUERY, DATABASE, query_labels, labels)
    query_labels[[2, 6]] = 0
    part = evaluate_codes(QUERY, DATABASE, query_labels, labels)
    assert (whole.queries, whole.excluded, part.queries, part.excluded, part.unlabelled) == (10, 0, 8, 2, 2)
    assert part.map == pytest.approx(np.delete(whole.per_query_ap, [2, 6]).mean())
    # zeros in the database are items that nobody looks for
    labels[1:] = 0
    assert evaluate_codes(QUERY, DATABASE, query_labels, labels).recall_at[1000] == 1.0


def test_real_valued_scores_rank_by_cosine() -> None:
    rng = np.random.default_rng(2)
    query, database = rng.standard_normal((10, 5)), 10.0 ** rng.integers(-2, 3, (20, 1)) * rng.standard_normal((20, 5))
    cosine = query @ database.T / np.linalg.norm(query, axis=1)[:, None] / np.linalg.norm(database, axis=1)
    for k in (None, 6):
        wanted = []
        for q in range(10):
            ranked = (QUERY_LABELS[q] @ LABELS.T > 0)[np.argsort(-cosine[q])]
            if ranked.any():
                precision = (np.cumsum(ranked) / np.arange(1, 21) * ranked)[:k]
                wanted.append(precision.sum() / min(ranked.sum(), k or 20))
        got = real_valued_map(query, database, QUERY_LABELS, LABELS, k=k)
        assert got == pytest.approx(np.mean(wanted), abs=1e-9)
    square = real_valued_map(query, query, QUERY_LABELS, QUERY_LABELS, exclude_self=True)
    assert square < real_valued_map(query, query, QUERY_LABELS, QUERY_LABELS)


def test_equal_cosines_rank_in_the_order_of_the_database() -> None:
    query = np.array([[1.0, 0.0]])
    database = np.array([[0.0, 1.0], [0.0, -1.0], [-1.0, 0.0], [2.0, 0.0], [-0.0, 1.0], [1.0, 0.0]])
    order = [3, 5, 0, 1, 4, 2]  # by cosines 1, 1, 0, 0, -0, -1
    for relevant in range(6):
        labels = np.eye(6, dtype=np.uint8)[:, [relevant]]
        score = real_valued_map(query, database, np.ones((1, 1), np.uint8), labels)
        assert score == pytest.approx(1 / (1 + order.index(relevant)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_real_valued_scores_refuse_rows_without_a_direction(bad: float) -> None:
    outputs = np.ones((20, 5))
    outputs[4] = bad
    with pytest.raises(DataError, match="1 items, the first of them 4"):
        real_valued_map(np.ones((10, 5)), outputs, QUERY_LABELS, LABELS)


def test_real_valued_scores_refuse_codes_and_mismatches() -> None:
    with pytest.raises(UsageError, match="query outputs must be a float array"):
        real_valued_map(QUERY, DATABASE, QUERY_LABELS, LABELS)
    with pytest.raises(DataError, match="5 dimensions but database outputs have 4"):
        real_valued_map(np.ones((10, 5)), np.ones((20, 4)), QUERY_LABELS, LABELS)
    with pytest.raises(DataError, match="no database outputs"):
        real_valued_map(np.ones((10, 5)), np.ones((0, 5)), QUERY_LABELS, LABELS)
