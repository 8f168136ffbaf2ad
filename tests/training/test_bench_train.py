"""`kenthash bench train`: the figures of a KDPH step agree with each other."""

import pytest

from kenthash.bench.training import bench_assignment


def test_the_share_of_the_assignments() -> None:
    figures = bench_assignment(batch=32, blocks=1)
    step, assignment = figures["KDPH step at batch 32, ms"], figures["one assignment at batch 32, ms"]
    assert step > 0 and assignment > 0
    assert figures["two assignments / KDPH step at batch 32"] == pytest.approx(2 * assignment / step)
