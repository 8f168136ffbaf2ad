"""`kenthash bench search`, its second part: whole indexes on disk, as a user has them.

    bench_index     adding, compacting, opening, searching; bytes on disk; the first search after a write
    bench_stages    an index of two stages beside exhaustive search by the long code and search by the first bits

For `bench_stages` an item is a normal vector z of 48 dimensions, bit i of its code the sign of a random projection of
z, and a query the real-valued projections of a noisy copy, √(1 − s²) z + s ε. So each bit tells as much as any other,
as in nested codes, and the noise s says how hard a query is. What counts is the share of queries that have their own
item among the first ten.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.bench.peers import K, private_bytes
from kenthash.bench.search import BITS, make_codes
from kenthash.codes import Codes, pack
from kenthash.search import Index
from kenthash.search.local import scan

PART = 100_000  # items that are added at once
QUERIES = 100
WRITES, PAUSE = 100, 0.1  # upserts, and seconds between them
FRESH = 40_000  # items that are not in the code file when writes are measured; 50,000 would have it rebuilt
DESCRIBED = 200_000  # items of the index of which bytes are counted
DIMENSIONS, LONG = 48, 256  # of vectors, and bits of the long codes
NOISES = (0.35, 0.5, 0.65)

Figures = dict[str, Any]


def bench_index(items: int) -> Figures:
    """A durable index on disk: seconds to add the codes, to compact, to open; milliseconds per query with metadata."""
    scan.use_compiled()
    codes, queries = make_codes(items, QUERIES, "clustered")
    figures: Figures = {"items": items}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.kh"
        with Index.create(path, BITS) as index:
            for start in range(0, items, 1_000_000):
                part = codes[start : start + 1_000_000]
                _time(figures, "add_s", index.add, [f"item {i:09}" for i in range(start, start + len(part))], part)
            _time(figures, "compact_s", index.compact)
            figures["bytes_an_item_on_disk"] = index.stats().bytes / items
        start_open = time.perf_counter()
        with Index.open(path) as index:
            index.search(queries[:1], K)
            figures["open_and_first_query_s"] = time.perf_counter() - start_open
            figures["query_ms"] = _per_query(index, queries)
            figures |= _after_writes(index, items, queries)
    return figures | {f"on_disk_{name}": size for name, size in bytes_on_disk(min(items, DESCRIBED)).items()}


def _time(figures: Figures, name: str, call: Callable[..., object], *arguments: Any) -> None:
    """Wall time in seconds and, as `name_cpu`, processor time: the least of several calls with the same name."""
    start, start_cpu = time.perf_counter(), time.process_time()
    call(*arguments)
    for key, spent in ((name, time.perf_counter() - start), (f"{name}_cpu", time.process_time() - start_cpu)):
        figures[key] = min(figures.get(key, np.inf), spent)


def _per_query(index: Index, queries: NDArray[Any], rounds: int = 3) -> float:
    """Milliseconds of processor time, the least of several rounds."""
    spent = np.inf
    for _ in range(rounds):
        start = time.process_time()
        for q in range(len(queries)):
            index.search(queries[q : q + 1], K)
        spent = min(spent, (time.process_time() - start) / len(queries))
    return 1e3 * spent


def _after_writes(index: Index, items: int, queries: Codes) -> dict[str, float]:
    """The first search after an upsert, ten times a second, where FRESH items are not in the code file: milliseconds of
    processor time. Every second upsert replaces an item, the others add one."""
    fresh, _ = make_codes(min(FRESH, items // 2), 1, "clustered", seed=1)
    index.add([f"new {i:09}" for i in range(len(fresh))], fresh)
    index.search(queries[:1], K)
    first: list[float] = []
    second: list[float] = []
    for turn in range(WRITES):
        name = f"item {turn * 997 % items:09}" if turn % 2 else f"late {turn:09}"
        index.upsert([name], fresh[turn : turn + 1])
        query = queries[turn % len(queries)][None]
        for times in (first, second):
            start = time.process_time()
            index.search(query, K)
            times.append(1e3 * (time.process_time() - start))
        time.sleep(PAUSE)
    return {
        "after_write_ms_median": float(np.median(first)),
        "after_write_ms_95th": float(np.percentile(first, 95)),
        "search_after_that_ms_median": float(np.median(second)),
    }


def bytes_on_disk(items: int) -> dict[str, float]:
    """Bytes per item of a compacted index: of ids, codes and metadata, what else the SQLite file takes, and the code
    file, which is made from these. Ids have 24 characters, metadata 97."""
    codes, _ = make_codes(items, 1, "clustered")
    ids = [f"photos/2024/{i:08}.jpg" for i in range(items)]
    about: dict[str, Any] = {
        "place": "beach",
        "labels": ["dog", "kite"],
        "author": "unknown",
        "note": "one afternoon .",
        "year": 2024,
    }
    entries = [about | {"year": 2000 + i % 25} for i in range(items)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes.kh"
        with Index.create(path, BITS) as index:
            for start in range(0, items, PART):
                part = slice(start, start + PART)
                index.add(ids[part], codes[part], entries[part])
            index.compact()
            code_file = float(index.stats().details["code file bytes"])
        total = path.stat().st_size  # closed: all is in the file
    parts = {
        "id": float(np.mean([len(name.encode()) for name in ids])),
        "code": float(codes.shape[1]),
        "metadata": float(np.mean([len(json.dumps(entry, separators=(",", ":")).encode()) for entry in entries])),
    }
    return parts | {"ours_in_sqlite": total / items - sum(parts.values()), "code_file": code_file / items}


def bench_stages(items: int) -> Figures:
    """Recall and time of codes of 256 bits: in two stages, the first of 64 bits; by all bits; by the first alone."""
    scan.use_compiled()
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((items, DIMENSIONS), np.float32)
    projection = rng.standard_normal((DIMENSIONS, LONG), np.float32)
    own = rng.integers(0, items, QUERIES)
    noise = rng.standard_normal((QUERIES, DIMENSIONS), np.float32)
    queries = {s: (np.sqrt(1 - s * s) * latent[own] + s * noise) @ projection for s in NOISES}
    codes = np.concatenate([pack(latent[start : start + PART] @ projection) for start in range(0, items, PART)])
    names = [f"item {i:09}" for i in range(items)]
    forms: dict[str, tuple[int, int | None, str]] = {
        "first": (BITS, None, "fast"), "stages": (BITS, LONG, "fast"), "all": (LONG, None, "scan")
    }  # fmt: skip
    figures: Figures = {"items": items, "recall": {s: {} for s in NOISES}, "query_ms": {}, "private_bytes_an_item": {}}
    found: dict[tuple[str, float], list[set[str]]] = {}  # by form and noise: the hits of each query
    with tempfile.TemporaryDirectory() as folder:
        for form, (bits, rerank_bits, tables) in forms.items():
            path, length = Path(folder) / f"{form}.kh", rerank_bits or bits
            with Index.create(path, bits, rerank_bits, form=tables) as index:
                for start in range(0, items, PART):
                    index.add(names[start : start + PART], codes[start : start + PART, : length // 8])
                index.compact()
            before = private_bytes()
            with Index.open(path) as index:
                for s, outputs in queries.items():
                    hits = [set(index.search(outputs[q : q + 1, :length], K)[0].ids) for q in range(QUERIES)]
                    figures["recall"][s][form] = float(
                        np.mean([names[i] in ids for i, ids in zip(own, hits, strict=True)])
                    )
                    found[form, s] = hits
                figures["query_ms"][form] = {
                    s: _per_query(index, outputs[:, :length]) for s, outputs in queries.items()
                }
                figures["private_bytes_an_item"][form] = (private_bytes() - before) / items
    both = {s: zip(found["stages", s], found["all", s], strict=True) for s in NOISES}
    return figures | {"same_hits": {s: float(np.mean([len(a & b) / K for a, b in both[s]])) for s in NOISES}}


def render_index(figures: Figures) -> str:
    lines = ["a durable index on disk, clustered codes (add: the best million; bytes per item):"]
    return "\n".join(lines + [f"  {name:<30}{value:>14,.3f}" for name, value in figures.items()])


def render_stages(figures: Figures) -> str:
    lines = [
        f"{figures['items']:,} codes of {LONG} bits, real-valued queries, own item among the first {K}, in per cent:"
    ]
    titles = {"first": f"first {BITS} bits", "stages": "two stages", "all": f"all {LONG} bits"}
    lines.append(f"{'noise':<10}" + "".join(f"{title:>28}" for title in titles.values()))
    for s, recall in figures["recall"].items():
        parts = (f"{100 * recall[form]:.1f}  ({figures['query_ms'][form][s]:.3f} ms)" for form in titles)
        lines.append(f"{s:<10}" + "".join(f"{part:>28}" for part in parts))
    same = ", ".join(f"{100 * share:.1f} at noise {s}" for s, share in figures["same_hits"].items())
    lines.append(f"of all {K} hits of two stages, per cent that are among those of all {LONG} bits: {same}")
    sizes = (f"{title} {figures['private_bytes_an_item'][form]:.1f}" for form, title in titles.items())
    return "\n".join([*lines, f"bytes of memory per item that are not mapped from a file: {', '.join(sizes)}"])
