"""`kenthash bench serve`, on a small index."""

from kenthash.bench.load import Load
from kenthash.bench.serve import BITS, RATE, _figures, bench_serve, render


def test_figures() -> None:
    """By hand: a hundred answers of 1 to 100 ms in two seconds, half of them paid by the server's processor."""
    load = Load([i / 1000 for i in range(1, 101)], errors=3, took=2.0)
    figures = _figures(load, 0.05)
    assert figures["requests"] == 100 and figures["requests_a_second"] == 50 and figures["errors"] == 3
    assert figures["p50_ms"] == 50.5 and 99 <= figures["p99_ms"] <= 100 and figures["server_cpu_ms"] == 0.5


def test_every_request_is_answered() -> None:
    result = bench_serve(items=2000, seconds=1)
    asked = {name: figures for name, figures in result.items() if name.startswith("by ")}
    assert len(asked) == 4 and all(figures["errors"] == 0 for figures in asked.values())
    assert asked[f"by id, {RATE:g} a second"]["requests"] >= RATE  # on a schedule: late, maybe, but all of them
    assert all(figures["p99_ms"] >= figures["p50_ms"] > 0 for figures in asked.values())
    assert f"codes of {BITS} bits" in render(result) and "by words, one client" in render(result)
