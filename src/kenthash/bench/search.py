"""`kenthash bench search`: exact nearest codes, compared with libraries that a user could install instead, in one run.

Codes of 64 bits: `clustered` (a centre for every 1,000 items, each bit of an item flipped with probability 13/128) and
`uniform`. Every library runs on one thread; they take turns, and the least processor time of each counts, so that other
load on the machine affects all alike. Results are compared: distances must equal those of faiss.

faiss's IndexBinaryFlat is the reference. pynear's MIHBinaryIndex is approximate, so its recall is shown; usearch scans.
"""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.errors import KenthashError
from kenthash.progress import bar
from kenthash.search import Index, mih, scan
from kenthash.search.codefile import read_code_file, write_code_file
from kenthash.search.searcher import snapshot_of
from kenthash.search.store import Mark

BITS, K = 64, 10
KINDS = ("clustered", "uniform")
LEAST = 1000  # items
PEERS_MOST = 2_000_000  # items; beyond this pynear builds for minutes, and usearch runs out of memory
ONCE = ("pynear MIH", "usearch exact")  # one turn each: usearch takes longer than all others together
SINGLE, BATCH = 100, 1000  # number of queries searched one by one, and together
Run = Callable[[Codes], NDArray[Any]]  # queries to distances [Q, K]


def bench_search(sizes: list[int], kinds: list[str], rounds: int = 3, batch_rounds: int = 2) -> list[dict[str, Any]]:
    """One record for each size and kind of codes: {contestant: {single_ms, batch_ms, bytes, ratios ...}}."""
    return [_compare(items, kind, rounds, batch_rounds) for items in sizes for kind in kinds]


def _compare(items: int, kind: str, rounds: int, batch_rounds: int) -> dict[str, Any]:
    codes, queries = make_codes(items, BATCH, kind)
    contestants: dict[str, dict[str, Any]] = {}
    runs: dict[str, Run] = {}
    for name, make in (
        ("faiss Flat", _faiss),  # first: without the reference there is nothing to compare with
        ("kenthash scan", lambda c: _kenthash(c, None)),
        ("kenthash compact", lambda c: _kenthash(c, False)),
        ("kenthash fast", lambda c: _kenthash(c, True)),
        ("pynear MIH", _pynear),
        ("usearch exact", _usearch),
    ):
        if name in ONCE and items > PEERS_MOST:
            contestants[name] = {"note": f"left out beyond {PEERS_MOST:,} items"}
            continue
        start = time.perf_counter()
        try:
            runs[name], size = make(codes)
            contestants[name] = {"build_s": time.perf_counter() - start, "bytes_an_item": size / items}
        except ImportError as error:
            if name == "faiss Flat":
                raise KenthashError("the bench compares with faiss: pip install 'kenthash[study]'") from error
            contestants[name] = {"note": "not installed"}
    true = runs["faiss Flat"](queries)
    with bar(rounds + batch_rounds, f"{items:,} {kind}", "rounds") as progress:
        for turn in range(rounds + batch_rounds):
            for name, run in runs.items():
                if name in ONCE and turn not in (0, rounds):
                    continue
                _take_turn(run, queries, contestants[name], true, batch=turn >= rounds)
            progress.update()
    for figures in contestants.values():
        for name in ("single_ms", "batch_ms"):
            if name in figures:
                figures[name.replace("ms", "ratio")] = contestants["faiss Flat"][name] / figures[name]
    return {"items": items, "kind": kind, "bits": BITS, "k": K, "contestants": contestants}


def _take_turn(run: Run, queries: Codes, figures: dict[str, Any], true: NDArray[Any], batch: bool) -> None:
    if batch:
        start = time.process_time()
        distances = run(queries)
        spent = (time.process_time() - start) / len(queries)
        figures["equal"] = bool(np.array_equal(distances, true))
        figures["recall"] = float((distances <= true[:, -1:]).mean())
    else:
        run(queries[:1])  # so that the processor's caches hold the data of this library
        spent = np.inf
        for part in range(0, SINGLE, SINGLE // 4):
            start = time.process_time()
            for q in range(part, part + SINGLE // 4):
                run(queries[q : q + 1])
            spent = min(spent, (time.process_time() - start) / (SINGLE // 4))
    name = "batch_ms" if batch else "single_ms"
    figures[name] = min(figures.get(name, np.inf), 1e3 * spent)


def make_codes(items: int, queries: int, kind: str, seed: int = 0) -> tuple[Codes, Codes]:
    rng = np.random.default_rng(seed)
    total = items + queries
    words = rng.integers(0, 1 << 64, total, np.uint64)
    if kind == "clustered":
        centres = words[: max(items // 1000, 1)].copy()
        flips = np.zeros(total, np.uint64)
        for bit in "1011000":  # 13/128 in binary, last digit first: OR halves the zeros, AND halves the ones
            coin = rng.integers(0, 1 << 64, total, np.uint64)
            flips = flips | coin if bit == "1" else flips & coin
        words = centres[rng.integers(0, len(centres), total)] ^ flips
    codes = words.view(np.uint8).reshape(total, BITS // 8)
    return codes[:items], codes[items:]


def _kenthash(codes: Codes, fast: bool | None) -> tuple[Run, int]:
    """The engine's own search in a code file; `fast` chooses the tables, None has none."""
    scan.use_compiled()
    words, rows = codes.view(np.uint64), np.arange(len(codes))
    cuts = np.empty((0, 3), np.int64) if fast is None else mih.substring_cuts(BITS, len(words))
    with tempfile.TemporaryDirectory() as folder:  # the file stays mapped without its name
        path = Path(folder) / "bench.codes"
        digest = write_code_file(path, Mark(len(words), 0), BITS, words, rows, cuts, bool(fast), threads=2)
        base = read_code_file(path, digest)
    state, pool = snapshot_of(base), ThreadPoolExecutor(1)

    def run(queries: Codes) -> NDArray[Any]:
        heaps, _ = state.search(queries.view(np.uint64), K, BITS, None, pool, 1)
        return np.stack([scan.read_heap(heap, BITS)[1] for heap in heaps])

    run(codes[:2])
    return run, base.bytes


def _faiss(codes: Codes) -> tuple[Run, int]:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexBinaryFlat(BITS)
    index.add(codes)
    return lambda queries: np.asarray(index.search(queries, K)[0]), codes.nbytes


def _pynear(codes: Codes) -> tuple[Run, int]:
    import pynear

    index = pynear.MIHBinaryIndex(4)
    index.set(codes)
    return lambda queries: np.asarray(index.searchKNN_arrays(queries, K)[1]), 0


def _usearch(codes: Codes) -> tuple[Run, int]:
    from usearch.index import MetricKind, search

    def run(queries: Codes) -> NDArray[Any]:
        matches = search(codes, queries, K, MetricKind.Hamming, exact=True, threads=1)
        return np.asarray(matches.distances).reshape(len(queries), K).astype(np.int64)

    return run, codes.nbytes


def bench_index(items: int) -> dict[str, float]:
    """A durable index on disk: seconds to add the codes, to compact, to open; milliseconds per query with metadata."""
    scan.use_compiled()
    codes, queries = make_codes(items, SINGLE, "clustered")
    figures: dict[str, float] = {"items": items}
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
            start_cpu = time.process_time()
            for q in range(SINGLE):
                index.search(queries[q : q + 1], K)
            figures["query_ms"] = 1e3 * (time.process_time() - start_cpu) / SINGLE
    return figures


def _time(figures: dict[str, float], name: str, call: Callable[..., object], *arguments: Any) -> None:
    """Wall time in seconds and, as `name_cpu`, processor time: the least of several calls with the same name."""
    start, start_cpu = time.perf_counter(), time.process_time()
    call(*arguments)
    for key, spent in ((name, time.perf_counter() - start), (f"{name}_cpu", time.process_time() - start_cpu)):
        figures[key] = min(figures.get(key, np.inf), spent)


def render(records: list[dict[str, Any]], index: dict[str, float] | None) -> str:
    lines = []
    for record in records:
        lines.append(f"{record['items']:,} {record['kind']} codes of {BITS} bits, k = {K}: one thread, least CPU time")
        lines.append(
            f"{'':<18}{'1 query':>12}{'ratio':>9}{f'of {BATCH:,}':>12}{'ratio':>9}{'B/item':>8}{'build':>9}  answers"
        )
        for name, figures in record["contestants"].items():
            if "note" in figures:
                lines.append(f"{name:<21}{figures['note']}")
                continue
            answers = "exact" if figures["equal"] else f"recall {figures['recall']:.3f}"
            size = f"{figures['bytes_an_item']:.0f}" if figures["bytes_an_item"] else "?"
            speed = "".join(f"{figures[f'{x}_ms']:>9.3f} ms{figures[f'{x}_ratio']:>8.1f}×" for x in ("single", "batch"))
            lines.append(f"{name:<18}{speed}{size:>8}{figures['build_s']:>7.1f} s  {answers}")
        lines.append("")
    if index:
        lines.append("a durable index on disk, clustered codes (add: the best million):")
        lines += [f"  {name:<24}{value:>14,.3f}" for name, value in index.items()]
    return "\n".join(lines).rstrip()
