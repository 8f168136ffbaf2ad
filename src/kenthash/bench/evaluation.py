"""`kenthash bench eval`: the histogram evaluator compared with the usual method, on the same codes in one run.

The usual method is written here as published code has it: for every query a float product with all codes, a float
product with all labels, a full sort, a gather, and the mean of count/rank over the relevant places. It runs in torch
with the number of threads that is faster on this machine, found by trying.

Runs of both alternate, and the best time of each counts, so that other load on the machine affects both alike.
"""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kenthash.codes import Codes, check_bits, pack, unpack
from kenthash.errors import UsageError
from kenthash.evaluation.evaluate import per_query_ap
from kenthash.evaluation.histograms import threads
from kenthash.evaluation.inputs import Labels
from kenthash.evaluation.measures import Scores
from kenthash.progress import bar

TOLERANCE = 1e-6
SLICES = 20  # of the queries, for the usual method: its time is the sum of the best times of the slices
OURS_EVERY = 4  # slices


def bench_eval(
    queries: int = 5_000, items: int = 117_218, bits: int = 64, classes: int = 80, rounds: int = 2, seed: int = 0
) -> dict[str, Any]:
    """Time both and compare their numbers. The defaults are those of MS COCO as usually split: 5,000 queries."""
    check_bits(bits)
    for name, value in (("queries", queries), ("items", items), ("classes", classes), ("rounds", rounds)):
        if value < 1:
            raise UsageError(f"{name} {value}: must be at least 1")
    codes, labels = synthetic(queries + items, bits, classes, seed)
    data = codes[:queries], codes[queries:], labels[:queries], labels[queries:]
    reference = FieldsWay(*data)
    per_query_ap(codes[:1], codes[:1], labels[:1], labels[:1])  # compiled, or loaded from the cache
    per_query_ap(codes[:1], codes[:1], labels[:1], labels[:1], ties="stable")

    best: dict[str, float] = {}
    parts: dict[int, Scores] = {}
    scores: dict[str, Scores] = {}
    starts = range(0, queries, -(-queries // SLICES))
    with bar(rounds * len(starts), "bench eval", unit="slices") as progress:
        for turn in range(rounds * len(starts)):
            start = starts[turn % len(starts)]
            stop = min(start + starts.step, queries)
            seconds, parts[start] = _timed(reference.average_precision, start, stop)
            _keep_fastest(best, f"field {start}", seconds)
            if turn % OURS_EVERY == 0:
                for ties in ("expected", "stable"):
                    seconds, scores[ties] = _timed(per_query_ap, *data, ties=ties)
                    _keep_fastest(best, ties, seconds)
            progress.update()
    scores["field"] = np.concatenate([parts[start] for start in starts])
    field = sum(best[f"field {start}"] for start in starts)
    difference = float(np.nanmax(np.abs(scores["stable"] - scores["field"]), initial=0.0))
    return {
        "queries": queries,
        "items": items,
        "bits": bits,
        "classes": classes,
        "rounds": rounds,
        "threads": threads(),
        "field_threads": reference.threads,
        "field_seconds": field,
        "expected_seconds": best["expected"],
        "stable_seconds": best["stable"],
        "ratio": field / best["expected"],
        "ratio_stable": field / best["stable"],
        "map_field": float(np.nanmean(scores["field"])),
        "map_stable": float(np.nanmean(scores["stable"])),
        "map_expected": float(np.nanmean(scores["expected"])),
        "largest_ap_difference": difference,
        "equal": bool(
            difference <= TOLERANCE and np.array_equal(np.isnan(scores["stable"]), np.isnan(scores["field"]))
        ),
        "peak_mib": _peak_mib(lambda: per_query_ap(*data)),
    }


def render(result: dict[str, Any]) -> str:
    r = result
    rows = (
        ("field (sort every query)", r["field_seconds"], 1.0, r["map_field"]),
        ("kenthash, stable order", r["stable_seconds"], r["ratio_stable"], r["map_stable"]),
        ("kenthash, expected", r["expected_seconds"], r["ratio"], r["map_expected"]),
    )
    equal = "equals" if r["equal"] else "DIFFERS FROM"
    lines = [
        f"{r['queries']:,} queries × {r['items']:,} items, {r['bits']} bits, {r['classes']} classes",
        f"{'':<26}{'seconds':>9}{'ratio':>9}{'mAP':>11}",
        *(f"{name:<26}{seconds:>9.2f}{ratio:>8.1f}×{score:>11.6f}" for name, seconds, ratio, score in rows),
        f"stable order {equal} the field's: largest difference of an AP {r['largest_ap_difference']:.1e}",
        f"working memory {r['peak_mib']:.0f} MiB beside codes and labels",
        f"best of alternating runs; {r['threads']} threads (field: {r['field_threads']}, its better choice)",
    ]
    return "\n".join(lines)


def synthetic(items: int, bits: int, classes: int, seed: int) -> tuple[Codes, Labels]:
    """Codes that cluster by label, with labels as uneven as real ones: class c has frequency ∝ 1/(c + 2), about three
    labels per item, and each output is the sum of its classes' directions and noise."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(2, classes + 2)
    labels = (rng.random((items, classes)) < np.minimum(3 * share / share.sum(), 0.6)).astype(np.uint8)
    labels[np.arange(items), rng.choice(classes, items, p=share / share.sum())] = 1
    directions = rng.standard_normal((classes, bits)).astype(np.float32)
    noise = rng.standard_normal((items, bits), dtype=np.float32)
    return pack(labels.astype(np.float32) @ directions + 1.5 * noise), labels


class FieldsWay:
    """The usual method as the reference: codes and labels as float tensors, one query at a time."""

    def __init__(self, queries: Codes, database: Codes, query_labels: Labels, database_labels: Labels) -> None:
        self.queries, self.database = (torch.from_numpy(unpack(c)).float() for c in (queries, database))
        self.query_labels, self.labels = (torch.from_numpy(x).float() for x in (query_labels, database_labels))
        self.threads = self._better_threads()

    def average_precision(self, first: int, last: int) -> Scores:
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            return np.array([self._of_query(q) for q in range(first, last)])
        finally:
            torch.set_num_threads(before)

    def _of_query(self, q: int) -> float:
        distance = 0.5 * (self.database.shape[1] - self.queries[q] @ self.database.T)
        relevant = (self.query_labels[q] @ self.labels.T > 0).float()
        order = torch.sort(distance, stable=True).indices
        places = torch.nonzero(relevant[order])[:, 0] + 1
        if not len(places):
            return float("nan")
        count = torch.arange(1, len(places) + 1, dtype=torch.float64)
        return float((count / places).mean())

    def _better_threads(self) -> int:
        tried: dict[int, float] = {}
        sample = min(10, len(self.queries))
        for count in (1, threads(), 1, threads()):
            self.threads = count
            start = time.perf_counter()
            self.average_precision(0, sample)
            tried[count] = min(tried.get(count, np.inf), time.perf_counter() - start)
        return min(tried, key=lambda count: tried[count])


def _timed(call: Callable[..., Scores], *arguments: Any, **options: Any) -> tuple[float, Scores]:
    start = time.perf_counter()
    result = call(*arguments, **options)
    return time.perf_counter() - start, result


def _keep_fastest(best: dict[str, float], name: str, seconds: float) -> None:
    best[name] = min(best.get(name, np.inf), seconds)


def _peak_mib(call: Callable[[], object]) -> float:
    """Peak memory of a call beyond what was in use before (numpy reports to tracemalloc)."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
