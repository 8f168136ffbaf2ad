"""What Milvus and PostgreSQL offer beyond the exact search, and tables and collections that kenthash did not make."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from brute_force import Reference, agree, clustered, names, outputs_near

from components import need
from kenthash.errors import DataError, KenthashError
from kenthash.search import Index, add_texts


@pytest.mark.parametrize("target", ["postgres"], indirect=True)
def test_postgres_graph(target: Callable[[str], str]) -> None:
    """HNSW is approximate, but its iterative scan still gives k results when few items pass the filter."""
    rng = np.random.default_rng(5)
    codes, ids, reference = rng.integers(0, 256, (3000, 8), np.uint8), names(rng, 3000), Reference()
    metadata = [{"n": n % 100} for n in range(3000)]
    reference.put(ids, codes, metadata)
    with Index.create(target("graph"), bits=64, hnsw=True) as index:
        index.add(ids, codes, metadata)
    with Index.open(target("graph")) as index:
        queries = codes[:20] ^ np.packbits(rng.random((20, 64)) < 0.1, axis=1)
        answers = index.search(queries, k=10)
        near = [reference.search(query, 10, None, lambda entry: True) for query in queries]
        pairs = [list(zip(hits.distances.tolist(), hits.ids, strict=True)) for hits in answers]
        assert sum([d for d, _ in own] == [d for d, _ in true] for own, true in zip(pairs, near, strict=True)) >= 15
        assert pairs == [sorted(own) for own in pairs]
        rare = index.search(queries, k=10, filter="n = 7")
        assert all(len(hits) == 10 and {e["n"] for e in hits.metadata} == {7} for hits in rare)
        assert index.stats().details["hnsw"] == 1
        for hits in (*answers, *index.search(outputs_near(rng, queries), k=10)):
            assert len(hits) == 10 and not hits.proven and hits.distances.tolist() == sorted(hits.distances.tolist())


@pytest.mark.parametrize("target", ["postgres"], indirect=True)
def test_postgres_of_another(target: Callable[[str], str]) -> None:
    """A table that is not ours is left alone; a database in which nothing is ours yet is a place to begin."""
    psycopg = need("psycopg")
    with psycopg.connect(target("x").partition("&table=")[0], autocommit=True) as connection:
        connection.execute("create table another (id text)")
        connection.execute("create database fresh")  # no other test has one of this name
    for make in Index.open, lambda address: Index.create(address, bits=64):
        with pytest.raises(KenthashError, match="table=another"):
            make(target("another"))
    with Index.open_or_create(re.sub(r"/\w+\?", "/fresh?", target("first")), bits=64) as index:
        assert index.stats().items == 0


@pytest.mark.parametrize("target", ["postgres"], indirect=True)
def test_postgres_table_of_any_name(target: Callable[[str], str]) -> None:
    """Also of one that the engine might take for its own."""
    code = np.zeros((1, 8), np.uint8)
    with Index.create(target("kenthash_rows"), bits=64) as index:
        index.upsert(["a"], code)
        index.upsert(["a"], code + 1)
        assert index.search(code + 1)[0].distances.tolist() == [0]


@pytest.mark.parametrize("target", ["milvus"], indirect=True)
def test_milvus_lists(target: Callable[[str], str]) -> None:
    """BIN_IVF_FLAT compares some lists only; with all of them it is exact again."""
    rng = np.random.default_rng(6)
    codes, ids, reference = clustered(rng, 1500, 64), names(rng, 1500), Reference()
    reference.put(ids, codes, [{}] * 1500)
    with Index.create(target("lists"), bits=64, lists=8, shards=2) as index:
        index.add(ids, codes)
        index.compact()
        assert index.stats().details["shards"] == 2
    with Index.open(target("lists"), probes=8) as index:
        agree(index, reference, codes[:5], k=20, proven=False)
        agree(index, reference, outputs_near(rng, codes[:5]), k=20, proven=False)


@pytest.mark.parametrize("target", ["milvus"], indirect=True)
def test_milvus_says_what_is_not_proven(target: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With few candidates. Real-valued queries far from all items, or with few large weights, need many."""
    monkeypatch.setattr("kenthash.search.servers.milvus.MAX_RESULTS", 300)
    rng = np.random.default_rng(9)
    codes, ids, reference = clustered(rng, 900, 64), names(rng, 900), Reference()
    reference.put(ids, codes, [{}] * 900)
    queries = np.concatenate([outputs_near(rng, codes[:6]), outputs_near(rng, rng.integers(0, 256, (6, 8), np.uint8))])
    queries[3:6, 8:] /= 1000
    with Index.create(target("unproven"), bits=64) as index:
        index.add(ids, codes)
        answers = index.search(queries, k=5)
        for query, hits in zip(queries, answers, strict=True):
            if hits.proven:
                true = reference.search(query, 5, None, lambda entry: True)
                assert list(zip(hits.distances.tolist(), hits.ids, strict=True)) == true
        assert {hits.proven for hits in answers} == {True, False}


@pytest.mark.parametrize("target", ["milvus"], indirect=True)
def test_milvus_index_with_the_name_of_texts(target: Callable[[str], str]) -> None:
    """An index called as another one's texts would be is left alone, and keeps the other one from having texts."""
    code = np.zeros((1, 8), np.uint8)
    with Index.create(target("own"), bits=64) as index, Index.create(target("own_texts"), bits=64) as other:
        other.upsert(["0/a"], code)
        index.upsert(["a"], code, [{"text": "a kite"}])
        index.upsert(["a"], code, [{"text": "a kite"}])
        with pytest.raises(DataError, match="own_texts: an index, where the texts of this one would be"):
            add_texts(index, lambda texts: code)
        assert index.count_texts(["a"]) == [0] and index.remove(["a"]) == 1
        assert other.list_ids() == ["0/a"]
