"""An index written by an earlier version opens and answers. `index-0.1.0.zip` holds one as version 0.1.0 left it:
200 items compacted, then 20 removed, 10 replaced and 100 added."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from brute_force import Reference, agree

from kenthash.errors import UsageError
from kenthash.search import Index, add_texts

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


def test_an_index_of_version_0_1_0_gets_texts(tmp_path: Path) -> None:
    shutil.unpack_archive(Path(__file__).with_name("index-0.1.0.zip"), tmp_path)
    with Index.open(tmp_path / "old.kh") as index:
        with pytest.raises(UsageError, match="this index has no texts"):
            index.search_texts(CODES[:1])
        assert index.label_counts() == [("dog", sum(i % 3 == 0 for i in range(20, 300)))]
        index.upsert(["new"], CODES[:1], [{"text": "a kite"}])
        assert add_texts(index, lambda texts: CODES[7 : 7 + len(texts)]) == 1
        (hits,) = index.search_texts(CODES[7:8])
        assert (hits.ids, hits.distances.tolist(), hits.texts) == (["new"], [0], ["a kite"])
    with closing(sqlite3.connect(tmp_path / "old.kh")) as file:  # which that version could go on with
        assert file.execute("PRAGMA user_version").fetchone() == (2,)
        file.execute("DELETE FROM items WHERE id = 'new'")  # and which keeps the texts in step for it
        file.commit()
    with Index.open(tmp_path / "old.kh") as index:
        assert len(index.search_texts(CODES[7:8])[0]) == 0
