"""An index written by an earlier version opens and answers. `index-0.1.0.zip` holds one as version 0.1.0 left it:
200 items compacted, then 20 removed, 10 replaced and 100 added."""

import shutil
from pathlib import Path

import numpy as np
from brute_force import Reference, agree

from kenthash.search import Index

CODES = np.random.default_rng(0).integers(0, 256, (300, 8), np.uint8)


def test_an_index_of_version_0_1_0(tmp_path: Path) -> None:
    shutil.unpack_archive(Path(__file__).with_name("index-0.1.0.zip"), tmp_path)
    reference = Reference()
    entries = [{"n": i, "labels": ["dog"] if i % 3 == 0 else []} for i in range(300)]
    reference.put([f"é{i:03}" for i in range(20, 300)], CODES[20:], entries[20:])
    for _ in range(2):  # the second time with the code file that this version made
        with Index.open(tmp_path / "old.kh") as index:
            assert index.notes() == {"model": "m"} and index.stats().items == 280
            assert agree(index, reference, CODES[::60], k=300) == 5 * 280
            agree(index, reference, CODES[::60], k=7, filter="labels has 'dog'", true_of=lambda e: bool(e["labels"]))
            index.compact()
            agree(index, reference, CODES[::60], k=20)
