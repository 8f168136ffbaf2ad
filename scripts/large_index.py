"""Measure a local index as it grows: 1, 10 and 100 million codes of 64 bits, in clusters of a thousand.

    python scripts/large_index.py 100000000 FOLDER

Prints one JSON line at each size: processor seconds to add and to compact, bytes on disk, the largest memory so far,
and processor milliseconds per query (median of 50, k = 10), for codes and for real-valued queries. 100 million take 8
minutes of a quiet core, 7 GB of disk and 6 GB of memory.
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, unpack
from kenthash.search import Index
from kenthash.search.local import scan

BITS, CHUNK, QUERIES, K = 64, 1_000_000, 50, 10


def make_codes(rng: np.random.Generator, centres: NDArray[np.uint64], number: int) -> Codes:
    """Codes that differ from the centre of their cluster in a tenth of the bits."""
    flips = np.zeros(number, np.uint64)
    for bit in "1011000":  # 13/128 in binary, last digit first: OR halves the zeros, AND halves the ones
        coin = rng.integers(0, 1 << 64, number, np.uint64)
        flips = flips | coin if bit == "1" else flips & coin
    return (centres[rng.integers(0, len(centres), number)] ^ flips).view(np.uint8).reshape(number, BITS // 8)


def query_ms(index: Index, queries: NDArray[np.generic]) -> float:
    spent = []
    for query in queries:
        start = time.process_time()
        index.search(query[None], K)
        spent.append(time.process_time() - start)
    return 1e3 * float(np.median(spent))


def main() -> None:
    if len(sys.argv) != 3 or not sys.argv[1].isdecimal() or int(sys.argv[1]) < CHUNK:
        sys.exit(f"usage: python scripts/large_index.py ITEMS FOLDER, at least {CHUNK:,} items")
    items, path = int(sys.argv[1]), Path(sys.argv[2]) / "large.kh"
    path.parent.mkdir(parents=True, exist_ok=True)
    scan.use_compiled()
    rng = np.random.default_rng(0)
    centres = rng.integers(0, 1 << 64, items // 1000, np.uint64)
    add_seconds = 0.0
    with Index.create(path, BITS, form="compact") as index:
        for first in range(0, items - CHUNK + 1, CHUNK):
            codes, ids = make_codes(rng, centres, CHUNK), [f"{i:09}" for i in range(first, first + CHUNK)]
            start = time.process_time()
            index.add(ids, codes)
            add_seconds += time.process_time() - start
            if (done := first + CHUNK) not in (10**6, 10**7, 10**8, items):
                continue
            start = time.process_time()
            index.compact()
            figures = {"items": done, "add_s": add_seconds, "compact_s": time.process_time() - start}
            queries = make_codes(rng, centres, QUERIES)
            outputs = unpack(queries) * rng.random((QUERIES, BITS))
            index.search(queries[:1], K)
            figures |= {"code_ms": query_ms(index, queries), "real_ms": query_ms(index, outputs.astype(np.float32))}
            figures["bytes_on_disk"] = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
            figures["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps({name: round(value, 3) for name, value in figures.items()}), flush=True)


if __name__ == "__main__":
    main()
