"""`kenthash bench search`: exact nearest codes, compared with libraries that a user could install instead, in one run.

Codes of 64 bits: `clustered` (a centre for every 1,000 items, each bit of an item flipped with probability 13/128) and
`uniform`. Every library runs on one thread; they take turns, and the least processor time of each counts, so that other
load on the machine affects all alike. Results are compared: distances must equal those of faiss's IndexBinaryFlat.
Peers (`bench/peers.py`) that are approximate have their recall shown.

Real-valued queries are the same codes, each bit with a weight of its own, |tanh| of a normal number. No peer ranks by
them, so they are compared with the scan by Hamming distance in the same run, and some answers with a slow reference.
"""

import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.bench.peers import FOR_MANY, MANY, PEERS, K, Run
from kenthash.codes import Codes, unpack
from kenthash.errors import KenthashError
from kenthash.progress import bar
from kenthash.search.local import mih, scan
from kenthash.search.local.codefile import CodeFile, read_code_file, write_code_file
from kenthash.search.local.scan import word_queries
from kenthash.search.local.snapshot import SearchContext, snapshot_of
from kenthash.search.local.store import Mark
from kenthash.search.queries import Queries, real_valued

BITS = 64
KINDS = ("clustered", "uniform")
LEAST = 1000  # items
LARGE = 50_000_000  # items; beyond this the form `fast` would take gigabytes, and many queries together many minutes
REFERENCE = "faiss Flat"
ONCE = ("pynear MIH", "usearch exact")  # one turn each: usearch takes longer than all others together
SINGLE, BATCH = 100, 1000  # number of queries searched one by one, and together
PROVEN = 2  # real-valued queries that are compared with a slow reference
CHUNK = 1 << 22  # codes made at a time

SliceQueries = Callable[[slice], Any]  # some of the queries, as a contestant takes them
Maker = Callable[[], tuple[Run, float]]  # a function from queries to distances, and bytes per item


def bench_search(sizes: list[int], kinds: list[str], rounds: int = 3, batch_rounds: int = 2) -> list[dict[str, Any]]:
    """One record for each size and kind of codes: {contestant: {single_ms, batch_ms, bytes, ratios ...}}."""
    return [_compare(items, kind, rounds, batch_rounds) for items in sizes for kind in kinds]


def _compare(items: int, kind: str, rounds: int, batch_rounds: int) -> dict[str, Any]:
    codes, queries = make_codes(items, BATCH, kind)
    contestants: dict[str, dict[str, Any]] = {}
    runs: dict[str, Run] = {}
    for name, make in _makers(codes).items():
        if make is None:
            contestants[name] = {"note": f"left out: {items:,} items"}
            continue
        start = time.process_time()
        try:
            runs[name], size = make()
            contestants[name] = {"build_s": time.process_time() - start, "bytes_an_item": size}
        except ImportError as error:
            if name == REFERENCE:
                raise KenthashError("the bench compares with faiss: pip install 'kenthash[study]'") from error
            contestants[name] = {"note": "not installed"}
    true = runs[REFERENCE](queries[:BATCH] if items <= LARGE else queries[:SINGLE])
    real = weighted(queries)
    true_of_real = _slow_distances(codes, real.select(slice(PROVEN)))
    del codes
    slicers: dict[str, SliceQueries] = {name: real.select if "real" in name else queries.__getitem__ for name in runs}
    batch_rounds = batch_rounds if items <= LARGE else 0
    with bar(rounds + batch_rounds, f"{items:,} {kind}", "rounds") as progress:
        for turn in range(rounds + batch_rounds):
            for name, run in runs.items():
                if name in ONCE and turn not in (0, rounds):
                    continue
                _take_turn(run, slicers[name], contestants[name], batch=turn >= rounds)
            progress.update()
    for name, run in runs.items():
        compared = true_of_real if "real" in name else true
        answers = run(slicers[name](slice(len(compared))))
        contestants[name]["equal"] = bool(np.array_equal(answers, compared))
        contestants[name]["recall"] = float((answers <= compared[:, -1:]).mean())
    for name, figures in contestants.items():
        beside = contestants["kenthash scan" if "real" in name else REFERENCE]
        for time_of in ("single", "batch"):
            if f"{time_of}_ms" in figures:
                figures[f"{time_of}_ratio"] = beside[f"{time_of}_ms"] / figures[f"{time_of}_ms"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"items": items, "kind": kind, "bits": BITS, "k": K, "peak_bytes": peak, "contestants": contestants}


def _makers(codes: Codes) -> dict[str, Maker | None]:
    """Who takes part; None where there are too many items for it. Ours come before the peers, which need the memory in
    which tables are made."""
    files: dict[str, CodeFile] = {}

    def file_of(form: str) -> CodeFile:
        if form not in files:
            files[form] = _code_file(codes, form)
        return files[form]

    def ours(form: str, real: bool) -> Maker:
        def make() -> tuple[Run, float]:
            base = file_of("compact" if form == "scan" else form)
            size = base.bytes / len(codes)
            if form == "scan":  # the same codes and rows, without the tables
                size = (base.codes.nbytes + base.rows.nbytes) / len(codes)
                base = replace(base, tables=None)
            return _run_of(base, real), size

        return make

    makers: dict[str, Maker | None] = {}
    for real in (False, True):
        for form in ("scan", "compact", "fast"):
            fits = form != "fast" or len(codes) <= LARGE
            makers[f"kenthash {form}{', real' if real else ''}"] = ours(form, real) if fits else None
    for name, peer in PEERS.items():
        fits = name in FOR_MANY or len(codes) <= MANY

        def make(peer: Callable[[Codes], tuple[Run, int]] = peer) -> tuple[Run, float]:
            run, size = peer(codes)
            return run, size / len(codes)

        makers[name] = make if fits else None
    return makers


def _take_turn(run: Run, slice_queries: SliceQueries, figures: dict[str, Any], batch: bool) -> None:
    if batch:
        all_queries = slice_queries(slice(BATCH))
        start = time.process_time()
        run(all_queries)
        spent = (time.process_time() - start) / BATCH
    else:
        queries = [slice_queries(slice(q, q + 1)) for q in range(SINGLE)]
        run(queries[0])  # so that the processor's caches hold the data of this library
        spent = np.inf
        for part in range(0, SINGLE, SINGLE // 4):
            start = time.process_time()
            for query in queries[part : part + SINGLE // 4]:
                run(query)
            spent = min(spent, (time.process_time() - start) / (SINGLE // 4))
    name = "batch_ms" if batch else "single_ms"
    figures[name] = min(figures.get(name, np.inf), 1e3 * spent)


def make_codes(items: int, queries: int, kind: str, seed: int = 0) -> tuple[Codes, Codes]:
    rng = np.random.default_rng(seed)
    total = items + queries
    centres = rng.integers(0, 1 << 64, max(items // 1000, 1), np.uint64)
    words = np.empty(total, np.uint64)
    for start in range(0, total, CHUNK):
        size = min(CHUNK, total - start)
        if kind == "clustered":
            flips = np.zeros(size, np.uint64)
            for bit in "1011000":  # 13/128 in binary, last digit first: OR halves the zeros, AND halves the ones
                coin = rng.integers(0, 1 << 64, size, np.uint64)
                flips = flips | coin if bit == "1" else flips & coin
            words[start : start + size] = centres[rng.integers(0, len(centres), size)] ^ flips
        else:
            words[start : start + size] = rng.integers(0, 1 << 64, size, np.uint64)
    codes = words.view(np.uint8).reshape(total, BITS // 8)
    return codes[:items], codes[items:]


def weighted(queries: Codes) -> Queries:
    """Real-valued queries with the signs of these codes."""
    sizes = np.abs(np.tanh(np.random.default_rng(1).standard_normal((len(queries), BITS))))
    return real_valued(sizes * unpack(queries))


def _slow_distances(codes: Codes, queries: Queries) -> NDArray[Any]:
    best = np.empty((len(queries), 0), np.int64)
    for start in range(0, len(codes), CHUNK // 16):
        part = codes[start : start + CHUNK // 16]
        distances = np.stack([queries.distances(q, part) for q in range(len(queries))])
        best = np.sort(np.concatenate((best, distances), axis=1), axis=1)[:, :K]
    return best


def _code_file(codes: Codes, form: str) -> CodeFile:
    words = codes.view(np.uint64)
    rows: NDArray[Any] = np.arange(len(codes), dtype=np.uint32)  # half the memory of the usual ones
    cuts = mih.substring_cuts(BITS, len(words))
    with tempfile.TemporaryDirectory() as folder:  # the file stays mapped without its name
        path = Path(folder) / "bench.codes"
        codes_and_rest = (words.reshape(-1, 1), np.empty((len(words), 0), np.uint64))
        digest = write_code_file(
            path, Mark(len(words), 0), (BITS, 0), *codes_and_rest, rows, cuts, form == "fast", threads=2
        )
        return read_code_file(path, digest)


def _run_of(base: CodeFile, real: bool) -> Run:
    """The engine's own search in a code file."""
    scan.use_compiled()
    state, pool = snapshot_of(base, BITS), ThreadPoolExecutor(1)

    def run(raw_queries: Codes | Queries) -> NDArray[Any]:
        queries = word_queries(raw_queries if isinstance(raw_queries, Queries) else Queries(raw_queries), BITS)
        looked = np.zeros(len(queries), np.int64)
        heaps, _ = state.search(queries, K, SearchContext((state.present, state.fresh.present), pool, 1, looked))
        return np.stack([scan.read_heap(heap, limit)[1] for heap, limit in zip(heaps, queries.limits, strict=True)])

    sample = base.codes[:2].view(np.uint8)
    run(weighted(sample) if real else sample)  # compiles the kernels, and measures what hashing costs
    return run


def render(records: list[dict[str, Any]]) -> str:
    lines = []
    for record in records:
        lines.append(f"{record['items']:,} {record['kind']} codes of {BITS} bits, k = {K}: one thread, least CPU time")
        lines.append("ratios: of faiss Flat's time to each; of real-valued queries, of kenthash scan's to theirs")
        lines.append(
            f"{'':<24}{'1 query':>12}{'ratio':>9}{f'of {BATCH:,}':>12}{'ratio':>9}{'B/item':>8}{'build':>9}  answers"
        )
        for name, figures in record["contestants"].items():
            if "note" in figures:
                lines.append(f"{name:<27}{figures['note']}")
                continue
            answers = "exact" if figures["equal"] else f"recall {figures['recall']:.3f}"
            size = f"{figures['bytes_an_item']:.0f}" if figures["bytes_an_item"] > 0 else "?"
            speed = "".join(
                f"{figures[f'{x}_ms']:>9.3f} ms{figures[f'{x}_ratio']:>8.2f}×" if f"{x}_ms" in figures else f"{'–':>21}"
                for x in ("single", "batch")
            )
            lines.append(f"{name:<24}{speed}{size:>8}{figures['build_s']:>7.1f} s  {answers}")
        lines += [f"memory of all together, at most: {record['peak_bytes'] / 2**30:.2f} GiB", ""]
    return "\n".join(lines).rstrip()
