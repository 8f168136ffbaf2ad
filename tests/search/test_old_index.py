"""Indexes written by earlier versions open and answer, and each release adds its own. `index-0.1.0.zip` holds one as
version 0.1.0 left it, without texts, `index-schema-2.zip` one of the last version before `id_order`, with texts, and
`index-0.2.0.zip` one of version 0.2.0, with texts, words and checksums. In each, 200 items were compacted, then 20
removed, 10 replaced and 100 added."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from brute_force import Metadata, Reference, agree

from kenthash.errors import DataError, UsageError
from kenthash.search import Index, add_texts
from kenthash.search.local.maintenance import verify_index

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
    assert verify_index(tmp_path / "old.kh").healthy


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


def test_an_index_of_schema_2(tmp_path: Path) -> None:
    shutil.unpack_archive(Path(__file__).with_name("index-schema-2.zip"), tmp_path)
    ids = [f"é{i:03}" for i in range(300)]
    entries: list[Metadata] = [{"n": i, "text": f"number {i}"} for i in range(300)]
    reference = Reference()
    reference.put(ids[20:], CODES[20:], entries[20:])
    with Index.open(tmp_path / "old.kh") as index:
        assert index.list_ids() == ids[20:] and index.stats().items == 280
        assert agree(index, reference, CODES[::60], k=300) == 5 * 280
        (hits,) = index.search_texts(CODES[70:71], k=1)
        assert (hits.ids, hits.texts) == (["é070"], ["number 70"])
        index.upsert([*ids[70:71], "é0705"], CODES[:2], entries[:2])  # in place, and between two
        index.remove(ids[80:90])
        reference.put([*ids[70:71], "é0705"], CODES[:2], entries[:2])
        for name in ids[80:90]:
            del reference.items[name]
    with Index.open(tmp_path / "old.kh") as index:
        assert index.list_ids() == sorted(reference.items)
        index.compact()
        agree(index, reference, CODES[::60], k=300)
        assert index.search_texts(CODES[70:71], k=1)[0].ids != ["é070"]  # which has no code of its new text
        with pytest.raises(DataError, match="'é0705' is in the index already"):
            index.add(["é0705"], CODES[:1])


def test_an_index_of_version_0_2_0(tmp_path: Path) -> None:
    shutil.unpack_archive(Path(__file__).with_name("index-0.2.0.zip"), tmp_path)
    path, ids = tmp_path / "old.kh", [f"é{i:03}" for i in range(300)]
    entries: list[Metadata] = [{"n": i, "text": f"number {i}"} for i in range(300)]
    reference = Reference()
    reference.put(ids[20:], CODES[20:], entries[20:])
    report = verify_index(path)
    assert report.healthy and (report.items, report.texts, report.code_files) == (280, 280, 2), report
    with Index.open(path) as index:
        assert index.list_ids() == ids[20:] and index.notes()["model"] == "m"
        assert agree(index, reference, CODES[::60], k=300) == 5 * 280
        assert index.search_texts(CODES[70:71], k=1)[0].texts == ["number 70"]
        assert index.match_words("number 77") == ["é077"]
        index.upsert(ids[70:71], CODES[:1], entries[:1])
        reference.put(ids[70:71], CODES[:1], entries[:1])
        index.compact()
        agree(index, reference, CODES[::60], k=300)
    assert verify_index(path).items == 280
