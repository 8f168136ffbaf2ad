"""What one query costs in codes, and in quantised float vectors of as many bytes per item, by faiss.

Latency alone, on one thread: the vectors are random, since no time depends on what they say. What each finds is
measured by `kenthash reproduce bytes`. OPQ takes the time of PQ and one rotation of the query; signs, ITQ and LSH are
codes.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.bench.peers import K
from kenthash.errors import KenthashError
from kenthash.search import Index
from kenthash.search.local import scan

SIZES = (8, 32, 128)  # bytes per item
STAGE = 64  # bits of the first stage
QUERIES, ROUNDS = 20, 3
FITTED = 2000  # vectors that quantisers are trained on
PART = 50_000  # items at a time

Search = Callable[[NDArray[Any]], object]
Contestant = tuple[str, Search, NDArray[Any]]  # with its queries
Figures = dict[str, Any]


def bench_vectors(items: int) -> Figures:
    """Milliseconds of processor time per query, the least of some rounds, by bytes per item and contestant."""
    scan.use_compiled()
    latencies: dict[int, dict[str, float]] = {}
    for size in SIZES:
        latencies[size] = {}
        for name, search, queries in _contestants(items, size):
            search(queries[:1])
            latencies[size][name] = min(_per_query(search, queries) for _ in range(ROUNDS))
    return {"items": items, "k": K, "query_ms": latencies}


def _per_query(search: Search, queries: NDArray[Any]) -> float:
    start = time.process_time()
    for q in range(len(queries)):
        search(queries[q : q + 1])
    return 1e3 * (time.process_time() - start) / len(queries)


def _contestants(items: int, size: int) -> Iterator[Contestant]:
    """One at a time, so that only one holds memory."""
    yield from _codes(items, size)
    for name, make in (("PQ", _pq), ("RaBitQ", _rabitq), ("int8", _int8), ("float32", _float32)):
        if (index := make(items, size)) is not None:
            yield name, partial(index.search, k=K), _random(QUERIES, index.d)


def _codes(items: int, size: int) -> Iterator[Contestant]:
    rng, bits = np.random.default_rng(size), 8 * size
    codes = rng.integers(0, 256, (items, size), np.uint8)
    queries, outputs = rng.integers(0, 256, (QUERIES, size), np.uint8), _random(QUERIES, bits)
    forms: list[tuple[int, int | None, tuple[str, NDArray[Any]]]]
    forms = [(bits, None, ("code", queries)), (bits, None, ("code, real query", outputs))]
    if bits > STAGE:
        forms.append((STAGE, bits, ("code, 8 bytes then all", outputs)))
    with tempfile.TemporaryDirectory() as folder:
        for first, rerank_bits, (name, form_queries) in forms:
            path = Path(folder) / f"{first}.kh"
            if not path.exists():
                with Index.create(path, first, rerank_bits, form="scan") as index:
                    for start in range(0, items, PART):
                        part = codes[start : start + PART]
                        index.add([f"{i:09}" for i in range(start, start + len(part))], part)
                    index.compact()
            with Index.open(path) as index:
                yield name, partial(index.search, k=K), form_queries


def _random(number: int, dims: int) -> NDArray[np.float32]:
    return np.random.default_rng(dims).standard_normal((number, dims), np.float32)


def _pq(items: int, size: int) -> Any:
    faiss = _faiss()
    index = faiss.IndexPQ(8 * size, size, 8)
    index.pq.cp.niter = index.pq.cp.min_points_per_centroid = 1
    index.train(_random(FITTED, index.d))
    return _filled(faiss, index, items)


def _int8(items: int, size: int) -> Any:
    faiss = _faiss()
    index = faiss.IndexScalarQuantizer(size, faiss.ScalarQuantizer.QT_8bit)
    index.train(_random(FITTED, index.d))
    return _filled(faiss, index, items)


def _filled(faiss: Any, index: Any, items: int) -> Any:
    """With codes at random, which takes less time than encoding vectors."""
    codes = np.random.default_rng(0).integers(0, 256, items * index.code_size, np.uint8)
    faiss.copy_array_to_vector(codes, index.codes)
    index.ntotal = items
    return index


def _rabitq(items: int, size: int) -> Any:
    """One bit for each dimension, and 8 bytes of factors."""
    if size <= 8:
        return None
    index = _faiss().IndexRaBitQ(8 * (size - 8))
    index.qb = 8  # bits of a query's components, which is faster than floats
    part = _random(PART, index.d)
    index.train(part[:FITTED])
    for start in range(0, items, PART):
        index.add(part[: min(PART, items - start)])
    return index


def _float32(items: int, size: int) -> Any:
    index = _faiss().IndexFlatL2(size // 4)
    index.add(_random(items, index.d))
    return index


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise KenthashError("the bench compares with faiss: pip install 'kenthash[study]'") from error
    faiss.omp_set_num_threads(1)
    return faiss


def render_vectors(figures: Figures) -> str:
    latencies = figures["query_ms"]
    names = dict.fromkeys(name for by_name in latencies.values() for name in by_name)
    lines = [f"{figures['items']:,} items, k = {K}: ms per query on one thread, by bytes per item:"]
    lines.append(f"{'':<24}" + "".join(f"{size:>12}" for size in latencies))
    for name in names:
        cells = (f"{by_name[name]:.3f}" if name in by_name else "–" for by_name in latencies.values())
        lines.append(f"{name:<24}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)
