"""Libraries that find near codes and that a user could install instead, as `kenthash bench search` runs them.

    faiss Flat         a scan, the reference
    faiss MultiHash    multi-index hashing up to 1 flipped bit in each of 4 tables of 16 bits, or beyond 2 million items
                       3 of 21 bits, whose lists are shorter; approximate
    faiss IVF          a scan of 1/32 of 4 √N lists, or beyond 2 million items of 1,024, since more take longer to build
                       than all others together; approximate
    faiss HNSW         a graph with 16 links per item, otherwise faiss's defaults; approximate
    pynear MIH         multi-index hashing in 4 tables; approximate
    usearch exact      a scan
    usearch b1         a graph of packed bits with usearch's defaults; approximate

Each maker takes codes [N, bits / 8] and gives a function from queries to distances [Q, K], with the number of bytes
that the library holds; where it does not say so, those by which the memory of this process grew. An ImportError says
that the library is not installed.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes

K = 10
Run = Callable[[Any], NDArray[Any]]  # queries to distances [Q, K]
Maker = Callable[[Codes], tuple[Run, int]]
MANY = 2_000_000  # items


def faiss_flat(codes: Codes) -> tuple[Run, int]:
    faiss = _faiss()
    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)
    return _run_of(index), codes.nbytes


def faiss_multi_hash(codes: Codes) -> tuple[Run, int]:
    faiss = _faiss()
    bits, before = 8 * codes.shape[1], private_bytes()
    tables = 4 if len(codes) <= MANY else 3
    index = faiss.IndexBinaryMultiHash(bits, tables, bits // tables)
    index.nflip = 1
    index.add(codes)
    return _run_of(index), private_bytes() - before


def faiss_ivf(codes: Codes) -> tuple[Run, int]:
    faiss = _faiss()
    lists = max(int(4 * len(codes) ** 0.5), 1) if len(codes) <= MANY else 1024
    quantiser = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index = faiss.IndexBinaryIVF(quantiser, 8 * codes.shape[1], lists)
    index.cp.max_points_per_centroid = 64  # of 256: k-means takes a quarter of the time, and recall is the same
    index.cp.min_points_per_centroid = 1
    index.train(codes)
    index.add(codes)
    index.nprobe = max(lists // 32, 1)
    return _run_of(index), _saved_bytes(faiss, index)


def faiss_hnsw(codes: Codes) -> tuple[Run, int]:
    faiss = _faiss()
    index = faiss.IndexBinaryHNSW(8 * codes.shape[1], 16)
    index.add(codes)
    return _run_of(index), _saved_bytes(faiss, index)


def pynear_mih(codes: Codes) -> tuple[Run, int]:
    import pynear

    before = private_bytes()
    index = pynear.MIHBinaryIndex(4)
    index.set(codes)
    return lambda queries: np.asarray(index.searchKNN_arrays(queries, K)[1]), private_bytes() - before


def usearch_exact(codes: Codes) -> tuple[Run, int]:
    from usearch.index import MetricKind, search

    def run(queries: Codes) -> NDArray[Any]:
        matches = search(codes, queries, K, MetricKind.Hamming, exact=True, threads=1)
        return np.asarray(matches.distances).reshape(len(queries), K).astype(np.int64)

    return run, codes.nbytes


def usearch_b1(codes: Codes) -> tuple[Run, int]:
    from usearch.index import Index, MetricKind, ScalarKind

    index = Index(ndim=8 * codes.shape[1], metric=MetricKind.Hamming, dtype=ScalarKind.B1)
    index.add(np.arange(len(codes)), codes, threads=1)

    def run(queries: Codes) -> NDArray[Any]:
        matches = index.search(queries, K, threads=1)
        return np.asarray(matches.distances).reshape(len(queries), K).astype(np.int64)

    return run, int(index.memory_usage)


def _faiss() -> Any:
    import faiss

    faiss.omp_set_num_threads(1)
    return faiss


def _run_of(index: Any) -> Run:
    def run(queries: Codes) -> NDArray[Any]:
        distances = np.asarray(index.search(queries, K)[0])
        return np.where(distances < 0, sys.maxsize, distances)  # of hits that are missing

    return run


def _saved_bytes(faiss: Any, index: Any) -> int:
    """faiss does not say what an index holds in memory: the size of its file is about the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        faiss.write_index_binary(index, str(path))
        return path.stat().st_size


def private_bytes() -> int:
    """Memory of this process that is its own: not what the system can drop and read again from a mapped file."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines.get("RssAnon", "0 kB").split()[0]) * 1024


PEERS: dict[str, Maker] = {
    "faiss Flat": faiss_flat,  # first: without the reference there is nothing to compare with
    "faiss MultiHash": faiss_multi_hash,
    "faiss IVF": faiss_ivf,
    "faiss HNSW": faiss_hnsw,
    "pynear MIH": pynear_mih,
    "usearch exact": usearch_exact,
    "usearch b1": usearch_b1,
}
FOR_MANY = ("faiss Flat", "faiss MultiHash", "faiss IVF")  # the others take hours to build, or too much memory
