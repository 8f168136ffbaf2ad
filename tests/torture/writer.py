"""Writes to an index while the shim records it: `python writer.py INDEX FIRST_SEED CHANGES SYNCHRONOUS`.

SYNCHRONOUS is SQLite's setting: the index's own is FULL, others show what a test can find.
"""

import sys
from pathlib import Path
from typing import Any

from changes import BITS, CODE_BITS, carry_out, change

from kenthash.search import Index
from kenthash.search.local import scan, schema
from shim import Shim


def main() -> None:
    path, first, count, synchronous = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    connect = schema._connect

    def connect_so(path: Path, address: str) -> Any:
        connection = connect(path, address)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection

    if synchronous != "FULL":
        schema._connect = connect_so
    scan._words_left = 1 << 40  # by numpy: compiled kernels do not write
    shim = Shim()
    index = Index.create(path, BITS, CODE_BITS)
    shim.note("created")
    for seed in range(first, first + count):
        what = change(seed)
        if what.kind == "reopen":
            index.close()
            index = Index.open(path)
        carry_out(index, what)
        shim.note(str(seed))  # acknowledged
    index.close()


if __name__ == "__main__":
    main()
