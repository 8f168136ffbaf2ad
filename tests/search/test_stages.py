"""Two stages where items are more than candidates: the candidates of a scan, and answers ranked by whole codes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from components import need
from kenthash.codes import Codes, pack
from kenthash.search import Index
from kenthash.search.local import scan, snapshot
from kenthash.search.local.maintenance import verify_index
from kenthash.search.queries import Queries, real_valued

ITEMS, BITS, LONG = 40_000, 64, 160
NOBODY = np.empty(0, np.uint64)


def vectors(seed: int, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.random.default_rng(seed).standard_normal((count, 24)) @ np.random.default_rng(1).standard_normal(
        (24, LONG)
    )


def odd_slots() -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.full(ITEMS // 64 + 1, 0xAAAAAAAAAAAAAAAA, np.uint64)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("is_real", [False, True])
def test_candidates_are_all_within_a_distance(is_real: bool, threads: int) -> None:
    need("numba")
    codes: Codes = pack(vectors(0, ITEMS)[:, :BITS])
    for seed in range(5):
        outputs = vectors(10 + seed, 1)[:, :BITS]
        queries = real_valued(outputs) if is_real else Queries(pack(outputs))
        true, prepared = queries.distances(0, codes), scan.word_queries(queries, BITS)
        upper = queries if queries.weights is None else Queries(queries.codes, queries.weights >> np.uint8(4))
        bounds, unit = upper.distances(0, codes), 16 if is_real else 1
        with ThreadPoolExecutor(threads) as pool:
            for allowed in (NOBODY, odd_slots()):
                near = scan.near_by_sample(
                    prepared, scan.to_words(codes), allowed, 400, pool if threads > 1 else None, threads
                )
                assert near is not None
                within = np.flatnonzero(unit * bounds < near.beyond)
                assert true[unit * bounds >= near.beyond].min() >= near.beyond
                expected = within[within % 2 == 1] if len(allowed) else within
                assert near.slots.tolist() == expected.tolist() and 100 <= len(expected) <= 1600
                assert near.distances.tolist() == true[expected].tolist()


def test_a_sample_that_tells_nothing() -> None:
    need("numba")
    query = scan.word_queries(Queries(np.zeros((1, 8), np.uint8)), BITS)
    same = np.zeros((ITEMS, 1), np.uint64)  # all within distance 0: more than there is room for
    assert scan.near_by_sample(query, same, NOBODY, 400, None, 1) is None
    few = np.zeros(ITEMS // 64 + 1, np.uint64)
    few[3] = 1
    different = scan.to_words(pack(vectors(0, ITEMS)[:, :BITS]))
    assert scan.near_by_sample(query, different, few, 400, None, 1) is None
    assert scan.near_by_sample(query, different, NOBODY, ITEMS // 2, None, 1) is None


@pytest.mark.parametrize("form", ["scan", "fast"])
def test_an_empty_index_is_read_after_it_was_compacted(tmp_path: Path, form: str) -> None:
    path, codes = tmp_path / "x.kh", pack(vectors(0, 1))
    with Index.create(path, BITS, LONG, form=form) as index:
        index.compact()
        assert index.search(codes, 3)[0].ids == []
        index.add(["a"], codes)
        index.compact()
        index.remove(["a"])
        index.compact()  # a code file without a code
    with Index.open(path) as index:
        assert len(index) == 0 and index.search(codes, 3)[0].ids == []
        index.add(["b"], codes)
        assert index.search(codes, 3)[0].ids == ["b"]
    assert not verify_index(path).faults


@pytest.mark.parametrize(("form", "words_left"), [("scan", -1), ("fast", -1), ("scan", 1 << 40)])
@pytest.mark.parametrize("whole", [0, ITEMS])
def test_answers_are_ranked_by_whole_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, words_left: int, whole: int
) -> None:
    """With items beside the code file, removed ones, and a filter that few items pass; by the compiled kernels and by
    numpy. Up to a number of items all are ranked, so answers are exact."""
    if words_left < 0:
        need("numba")
    monkeypatch.setattr(scan, "_words_left", words_left)
    monkeypatch.setattr(snapshot, "WHOLE", whole)
    codes = pack(vectors(0, ITEMS))
    names = np.array([f"{i:06}" for i in range(ITEMS)])
    with Index.create(tmp_path / "x.kh", BITS, LONG, form=form) as index:
        index.add(names[:-500].tolist(), codes[:-500], [{"n": i} for i in range(ITEMS - 500)])
        index.compact()
        index.add(names[-500:].tolist(), codes[-500:], [{"n": i} for i in range(ITEMS - 500, ITEMS)])
        index.remove(names[:100].tolist())
        noisy = np.concatenate((vectors(0, ITEMS)[[50, 900, ITEMS - 9]] * 0.9 + 2 * vectors(3, 3), vectors(4, 2)))
        for query in (noisy, pack(noisy)):
            queries = real_valued(noisy) if query is noisy else Queries(pack(noisy))
            together = index.search(query, 10)
            for q in range(len(noisy)):
                true = queries.distances(q, codes)
                true[:100] = 1 << 40
                best = np.lexsort((names, true))[:10]
                (hits,) = index.search(query[q : q + 1], 10)
                assert hits.ids == together[q].ids
                assert hits.distances.tolist() == sorted(true[np.searchsorted(names, hits.ids)].tolist())
                assert len(set(hits.ids) & set(names[best].tolist())) >= 8  # of noise nothing is certain
                assert hits.proven or not whole
                assert not hits.proven or hits.ids == names[best].tolist()
            (hits,) = index.search(query[:1], 10, filter="n < 400")
            true = queries.distances(0, codes)[100:400]
            assert hits.ids == names[100 + np.lexsort((names[100:400], true))[:10]].tolist()


@pytest.mark.parametrize("words_left", [-1, 1 << 40])
@pytest.mark.parametrize("bits", [64, 40])
def test_small_indexes_are_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int, words_left: int) -> None:
    """Also with a radius, with many ties, and where the first bits do not fill a word."""
    if words_left < 0:
        need("numba")
    monkeypatch.setattr(scan, "_words_left", words_left)
    rng = np.random.default_rng(0)
    count, length = 3000, bits + 48
    outputs = np.sign(rng.standard_normal((30, length)))[rng.integers(0, 30, count)]  # 30 different codes ...
    outputs[rng.random(outputs.shape) < 0.01] *= -1  # ... with some bits flipped
    codes, names = pack(outputs), np.array([f"{i:04}" for i in rng.permutation(count)])
    with Index.create(tmp_path / "x.kh", bits, length) as index:
        index.add(names[:2500].tolist(), codes[:2500])
        index.compact()
        index.add(names[2500:].tolist(), codes[2500:])
        real = outputs[:4] + rng.standard_normal((4, length))
        for query, queries in ((real, real_valued(real)), (codes[:4], Queries(codes[:4]))):
            for radius in (None, 12):
                for q, hits in enumerate(index.search(query, 150, radius=radius)):
                    true = queries.distances(q, codes)
                    differing = np.bitwise_count(codes ^ queries.codes[q]).sum(axis=1)
                    inside = np.flatnonzero(differing <= (length if radius is None else radius))
                    best = inside[np.lexsort((names[inside], true[inside]))][:150]
                    assert hits.proven and hits.ids == names[best].tolist()
                    assert hits.distances.tolist() == true[best].tolist()
