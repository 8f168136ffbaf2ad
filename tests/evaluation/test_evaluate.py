"""The whole report of a retrieval, number by number, against loops over rankings."""

import json

import numpy as np
import pytest
from slow_retrieval import Data, make, ndcg, pairs
from slow_retrieval import average_precision as slow_ap

from kenthash.codes import pack, unpack
from kenthash.evaluation import evaluate_codes, map_of
from kenthash.evaluation.measures import bit_use, precision_at_recall


@pytest.fixture(scope="module")
def data() -> Data:
    query, database, query_labels, labels = make(11, 40, 300, 16, 6, density=0.2)
    query_labels[3] = 0  # no label at all
    query_labels[5] = [0, 0, 0, 0, 0, 1]
    query_labels[:, 4] = 0  # a class that no query carries
    labels[:, 5] = 0  # a class that no item carries: query 5 has no relevant item
    return query, database, query_labels, labels


def test_every_number_under_the_stable_rule(data: Data) -> None:
    e = evaluate_codes(*data, ks=(5, 100), radii=(2, 4), ties="stable")
    rankings = [pairs(*data, q) for q in range(40)]
    scored = [q for q in range(40) if any(shared for _, shared in rankings[q])]
    assert e.queries == len(scored)
    assert e.excluded == 40 - len(scored)
    assert e.unlabelled == int((~data[2].any(axis=1)).sum())
    assert 5 not in scored
    assert np.isnan(e.per_query_ap[[3, 5]]).all()

    relevant = {q: [int(s > 0) for _, s in sorted(rankings[q], key=lambda item: item[0])] for q in scored}
    assert e.map == pytest.approx(np.mean([float(slow_ap(relevant[q])) for q in scored]), abs=1e-12)
    for k in (5, 100):
        assert e.map_at[k] == pytest.approx(np.mean([float(slow_ap(relevant[q], k)) for q in scored]), abs=1e-12)
        hits = {q: sum(relevant[q][:k]) for q in scored}
        assert e.precision_at[k] == pytest.approx(np.mean([hits[q] / k for q in scored]))
        assert e.recall_at[k] == pytest.approx(np.mean([hits[q] / sum(relevant[q]) for q in scored]))
    assert e.precision_curve[5] == e.precision_at[5]
    assert max(e.precision_curve) == 300
    for radius in (2, 4):
        within = {q: [s > 0 for d, s in rankings[q] if d <= radius] for q in scored}
        assert e.precision_within[radius] == pytest.approx(np.mean([np.mean(f) if f else 0.0 for f in within.values()]))
        assert e.empty_within[radius] == pytest.approx(np.mean([not f for f in within.values()]))
    for c in range(6):
        members = [e.per_query_ap[q] for q in scored if data[2][q, c]]
        assert e.per_class[c].queries == len(members)
        assert e.per_class[c].map == pytest.approx(np.mean(members) if members else np.nan, nan_ok=True)
    assert e.per_class[4].queries == 0
    assert sum(group.queries for group in e.per_label_count.values()) == len(scored)
    for n, group in e.per_label_count.items():
        assert group.map == pytest.approx(np.mean([e.per_query_ap[q] for q in scored if data[2][q].sum() == n]))


def test_expected_precision_and_ndcg_are_means_over_shuffled_databases(data: Data) -> None:
    e = evaluate_codes(*data, ks=(20,))
    assert e.map == pytest.approx(map_of(*data))
    rng = np.random.default_rng(0)
    precision, gain, ap = [], [], []
    for q in (q for q in range(40) if not np.isnan(e.per_query_ap[q])):
        items = pairs(*data, q)
        for _ in range(30):
            ranking = [items[i][1] for i in sorted(rng.permutation(300), key=lambda i: items[i][0])]
            precision.append(np.mean([s > 0 for s in ranking[:20]]))
            gain.append(ndcg(ranking, 20))
            ap.append(float(slow_ap(ranking)))
    assert e.precision_at[20] == pytest.approx(np.mean(precision), abs=0.01)
    assert e.ndcg_at[20] == pytest.approx(np.mean(gain), abs=0.01)
    assert e.map == pytest.approx(np.mean(ap), abs=0.002)
    assert e.map_interval[0] < e.map < e.map_interval[1]


def test_precision_recall_curve_by_hand() -> None:
    # distance 0: 1 of 2 relevant; distance 1: none of 2; distance 2: 3 of 4
    curve = precision_at_recall(
        np.array([[1, 0, 3], [0, 0, 0]]), np.array([[2, 2, 4], [2, 2, 4]]), np.array([0.1, 0.25, 0.5, 1])
    )
    assert curve[0].tolist() == pytest.approx([1 / 2, 1 / 2, 2 / (4 + 4 / 3), 4 / 8])
    assert np.isnan(curve[1]).all()


def test_bits_by_numpy_and_constant_ones() -> None:
    rng = np.random.default_rng(4)
    signs = np.sign(rng.standard_normal((500, 16)) + 0.3)
    signs[:, 1], signs[:, 2] = signs[:, 0], -1  # bit 1 repeats bit 0, bit 2 never varies
    use = bit_use(pack(signs))
    varying = np.delete(signs, 2, axis=1)
    correlations = np.abs(np.corrcoef(varying.T))[~np.eye(15, dtype=bool)]
    assert use.constant == 1
    assert use.correlation == pytest.approx(correlations.mean())
    np.testing.assert_allclose(use.ones, (signs > 0).mean(axis=0))
    assert use.balance == pytest.approx(1 - np.abs(signs.mean(axis=0)).mean())
    same = bit_use(np.zeros((5, 2), np.uint8))
    assert (same.constant, same.balance) == (16, 0.0)
    assert np.isnan(same.correlation)
    assert np.array_equal(unpack(pack(signs)), signs)


def test_json_has_no_nan_and_survives_a_round_trip(data: Data) -> None:
    e = evaluate_codes(*data)
    text = json.dumps(e.to_json(), allow_nan=False)
    back = json.loads(text)
    assert back["map"] == pytest.approx(e.map, abs=1e-6)
    assert back["per_class"][4] == {"map": None, "queries": 0}
    assert back["ties"] == "expected"
    assert set(back["precision_at"]) == {"10", "100", "1000"}
    assert "per_query_ap" not in back
