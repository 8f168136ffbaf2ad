"""The kernels' histograms, on the processor and in torch, against loops over all pairs."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from slow_retrieval import make, pairs

from kenthash.errors import UsageError
from kenthash.evaluation import histograms
from kenthash.evaluation.histograms import count_by_distance
from kenthash.evaluation.inputs import Retrieval
from kenthash.evaluation.stable import stable_scores


def counted(task: Retrieval, grades: int, device: str = "cpu") -> np.ndarray:
    return np.concatenate([part.counts for part in count_by_distance(task, grades, device)])


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])  # "cpu:0" is torch's
@pytest.mark.parametrize(
    ("bits", "classes", "grades", "exclude_self"),
    [(8, 1, 2, False), (24, 5, 6, True), (64, 80, 2, True), (72, 65, 3, False), (1024, 1000, 2, False)],
)
def test_counts_equal_a_loop_over_pairs(bits: int, classes: int, grades: int, exclude_self: bool, device: str) -> None:
    items = 13 if exclude_self else 70
    data = make(bits, 13, items, bits, classes, density=0.2 if classes < 100 else 0.02)
    expected = np.zeros((13, bits + 1, grades), np.int64)
    for q in range(13):
        for distance, shared in pairs(*data, q, skip=q if exclude_self else None):
            expected[q, distance, min(shared, grades - 1)] += 1
    assert np.array_equal(counted(Retrieval(*data, exclude_self), grades, device), expected)


@pytest.mark.parametrize("exclude_self", [False, True])
def test_chunks_of_queries_and_database_change_nothing(monkeypatch: pytest.MonkeyPatch, exclude_self: bool) -> None:
    task = Retrieval(*make(1, 5_000, 5_000, 16, 9, density=0.1), exclude_self)  # more than two blocks of items
    whole = counted(task, 3)
    assert whole.sum() == 5_000 * (5_000 - exclude_self)
    monkeypatch.setattr(histograms, "DATABASE_CHUNK", 1_984)
    monkeypatch.setattr(histograms, "COUNTS_BYTES", 8 * 17 * 3 * 1_700)
    parts = list(count_by_distance(task, 3))
    assert [part.first for part in parts] == [0, 1_700, 3_400]
    assert np.array_equal(np.concatenate([part.counts for part in parts]), whole)
    assert np.array_equal(counted(task, 3, "cpu:0"), whole)
    distances, sums = np.bitwise_count(task.query_codes[7] ^ task.database_codes).sum(axis=1), whole[7].sum(axis=1)
    assert np.array_equal(
        sums + exclude_self * np.eye(17, dtype=int)[distances[7]], np.bincount(distances, minlength=17)
    )


@pytest.mark.parametrize("exclude_self", [False, True])
def test_stable_order_on_a_device_equals_the_kernel(exclude_self: bool) -> None:
    task = Retrieval(*make(2, 400, 400, 8, 7, density=0.1), exclude_self)
    (part,) = count_by_distance(task)
    ks = [None, 50, 3, 400]
    ap, hits = stable_scores(task, part, ks)
    ap_torch, hits_torch = stable_scores(task, part, ks, "cpu:0")
    assert np.array_equal(hits, hits_torch)
    np.testing.assert_allclose(ap, ap_torch, atol=1e-12)
    assert not np.array_equal(ap[:, 0], ap[:, 1])


def test_working_memory_does_not_grow_with_the_database() -> None:
    def peak(items: int) -> int:
        codes = np.broadcast_to(np.arange(8, dtype=np.uint8), (items, 8))
        labels = np.broadcast_to(np.eye(1, 80, dtype=np.uint8), (items, 80))
        task = Retrieval(codes[:3], codes, labels[:3], labels)
        tracemalloc.start()
        try:
            assert counted(task, 2)[:, 0, 1].tolist() == [items] * 3
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    chunk = histograms.DATABASE_CHUNK
    assert peak(8 * chunk) < 1.1 * peak(2 * chunk) < 64 * 2**20


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"device 'nonsense' cannot be used[^\n]*$"):
        counted(Retrieval(*make(0, 2, 2, 8, 2)), 2, "nonsense")


def test_read_only_and_strided_arrays_need_no_second_compilation() -> None:
    data = make(8, 9, 30, 64, 5)
    wanted = counted(Retrieval(*data), 2)
    kernel: Any = histograms.count_items
    compiled = len(kernel.signatures)
    for array in data:
        array.setflags(write=False)
    a, b, c, d = (np.repeat(array, 2, axis=0)[::2] for array in data)
    assert np.array_equal(counted(Retrieval(*data), 2), wanted)
    assert np.array_equal(counted(Retrieval(a, b, c, d), 2), wanted)
    one_label = np.eye(1, 5, dtype=np.uint8)
    assert counted(Retrieval(data[0][:1], data[1][:1], one_label, one_label), 2).sum() == 1
    assert len(kernel.signatures) == compiled
