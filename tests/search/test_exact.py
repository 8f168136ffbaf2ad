"""Search against brute force: kernels with and without tables, by packed and by real-valued queries; then whole indexes
with additions, removals, filters."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kenthash.codes import Codes, hamming, pack, unpack
from kenthash.search import Index
from kenthash.search.local import codefile, mih, scan
from kenthash.search.local.local_engine import LocalEngine
from kenthash.search.local.scan import to_words, word_queries
from kenthash.search.local.store import READ_ROWS
from kenthash.search.queries import Queries, real_valued

ALL = np.empty(0, np.uint64)


def make_codes(kind: str, items: int, bits: int, seed: int = 0) -> Codes:
    rng = np.random.default_rng(seed)
    width = bits // 8
    if kind == "equal":
        return np.full((items, width), 0xA5, np.uint8)
    if kind == "uniform":
        return rng.integers(0, 256, (items, width), np.uint8)
    centres = rng.integers(0, 256, (8, width), np.uint8)
    flips = np.packbits(rng.random((items, bits)) < 0.06, axis=1, bitorder="little")
    return centres[rng.integers(0, 8, items)] ^ flips


def outputs_near(codes: Codes, kind: str, seed: int = 0) -> NDArray[np.float32]:
    """Real-valued queries with the signs of codes: of sizes as a model gives them, or with many ties and zeros."""
    rng = np.random.default_rng(seed)
    shape = (len(codes), 8 * codes.shape[1])
    sizes = rng.integers(0, 3, shape) if kind == "ties" else np.abs(np.tanh(rng.normal(size=shape)))
    return np.asarray(sizes * unpack(codes), np.float32)


def weighted(outputs: NDArray[np.float32], codes: Codes) -> NDArray[np.int64]:
    """Weighted distances [Q, N], term by term."""
    weights = np.rint(255 * np.abs(outputs.astype(np.float64)) / np.abs(outputs).max(axis=1, keepdims=True))
    differs = (outputs >= 0)[:, None] != (unpack(codes) > 0)[None]
    return np.asarray((weights[:, None] * differs).sum(axis=2), np.int64)


def nearest(
    distances: NDArray[Any], k: int, radius: int, differing: NDArray[Any] | None = None
) -> list[tuple[int, int]]:
    """(distance, slot), by a full sort, of those that differ in at most `radius` bits."""
    bits = distances if differing is None else differing
    return sorted((int(d), slot) for slot, d in enumerate(distances) if bits[slot] <= radius)[:k]


def as_pairs(heap: scan.Keys, limit: int) -> list[tuple[int, int]]:
    slots, distances = scan.read_heap(heap, limit)
    return list(zip(distances.tolist(), slots.tolist(), strict=True))


def build_tables(codes: scan.Words, bits: int, fast: bool) -> mih.Tables:
    """Tables of multi-index hashing in memory."""
    cuts, n = mih.substring_cuts(bits, len(codes)), len(codes)
    m = len(cuts)
    low, high = np.empty((m, n), np.uint16), np.empty((m, n), f"u{mih.high_bytes(n)}")
    offsets, copies = np.empty(mih.offsets_size(cuts), np.uint32), np.empty((m, n if fast else 0), np.uint64)
    tables = mih.Tables(cuts, offsets, low, high, copies)
    mih.fill_tables(tables, codes, 1)
    return tables


@pytest.mark.parametrize("weights", ["none", "tanh", "ties"])
@pytest.mark.parametrize("bits", [16, 24, 64, 72, 128, 256, 1024])
@pytest.mark.parametrize("kind", ["uniform", "clustered", "equal"])
def test_kernels_equal_brute_force(kind: str, bits: int, weights: str) -> None:
    codes, query_codes = make_codes(kind, 700, bits), make_codes("uniform", 3, bits, seed=1)
    query_codes[0] = codes[5]
    differing = hamming(query_codes, codes)
    queries, true = Queries(query_codes), differing
    if weights != "none":
        outputs = outputs_near(query_codes, weights)
        queries, true, differing = real_valued(outputs), weighted(outputs, codes), hamming(pack(outputs), codes)
    words = to_words(codes)
    # With few bits per table, the buckets within any distance are few enough to look up all of them.
    tables = [build_tables(words, bits, fast) for fast in ({True, False} if bits <= 64 else {False})]
    for k, radius in ((1, bits), (10, bits), (10, bits // 4), (700, bits)):
        prepared = word_queries(queries, radius)
        heaps, by_numpy = prepared.new_heaps(k), prepared.new_heaps(k)
        scan.scan_compiled(prepared, words, 0, len(words), ALL, heaps)
        scan.scan_with_numpy(prepared, words, ALL, by_numpy)
        for q in range(len(queries)):
            expected, limit = nearest(true[q], k, radius, differing[q]), int(prepared.limits[q])
            assert as_pairs(heaps[q], limit) == as_pairs(by_numpy[q], limit) == expected
            for table in tables:
                heap = prepared.new_heaps(k)[q]
                looked = table.search(prepared, q, words, ALL, 1 << 40, 3_000_000, heap)
                if looked >= 0:
                    assert as_pairs(heap, limit) == expected
                elif k <= 10 and kind != "uniform" and weights == "none":
                    pytest.fail("gave up on an easy search")


@pytest.mark.parametrize("weights", ["none", "tanh", "ties"])
def test_hashing_finishes_where_it_should(weights: str) -> None:
    """Not the scan behind it: uniform codes of 24 and 32 bits, all distances, with and without copies."""
    for bits in (24, 32):
        codes = make_codes("uniform", 3000, bits)
        words, outputs = to_words(codes), outputs_near(codes[:4], weights)
        queries = Queries(codes[:4]) if weights == "none" else real_valued(outputs)
        true = hamming(codes[:4], codes) if weights == "none" else weighted(outputs, codes)
        prepared = word_queries(queries, bits)
        for fast in (True, False):
            table = build_tables(words, bits, fast)
            for q in range(4):
                heap = prepared.new_heaps(50)[q]
                assert table.search(prepared, q, words, ALL, 1 << 40, 1 << 40, heap) > 0
                assert as_pairs(heap, int(prepared.limits[q])) == nearest(true[q], 50, bits, np.zeros(3000))


@pytest.mark.parametrize("weights", ["none", "tanh"])
def test_hashing_gives_up_early_when_it_is_hopeless(weights: str) -> None:
    codes, far = make_codes("uniform", 50_000, 64), make_codes("uniform", 1, 64, seed=9)
    queries = Queries(far) if weights == "none" else real_valued(outputs_near(far, weights))
    prepared, words = word_queries(queries, 64), to_words(codes)
    heap = prepared.new_heaps(1000)[0]
    looked = build_tables(words, 64, True).search(prepared, 0, words, ALL, 500, 10_000, heap)
    assert -10_000 < looked < 0


def test_hashing_by_weights_looks_at_few_items() -> None:
    """Of a clustered set, it proves the ten best having looked at a small part."""
    codes = make_codes("clustered", 50_000, 64)
    prepared, words = word_queries(real_valued(outputs_near(codes[:20], "tanh")), 64), to_words(codes)
    table = build_tables(words, 64, True)
    looked = [
        table.search(prepared, q, words, ALL, 1 << 40, 1 << 40, heap) for q, heap in enumerate(prepared.new_heaps(10))
    ]
    assert 0 < np.median(looked) < 12_500


@pytest.mark.parametrize("kind", ["uniform", "clustered", "equal"])
@pytest.mark.parametrize(("bits", "form"), [(16, "fast"), (64, "fast"), (64, "compact"), (64, "scan"), (128, "fast")])
def test_index_equals_brute_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, bits: int, form: str
) -> None:
    monkeypatch.setattr(mih, "MIN_ITEMS", 1000)  # so that a small index has tables
    monkeypatch.setattr(mih, "SAMPLE", 500)
    rng = np.random.default_rng(2)
    items = 2000
    codes = make_codes(kind, items, bits)
    ids = [f"é{i}" if i % 2 else f"I{i}" for i in rng.permutation(items)]
    entries = [
        {"n": i % 50, "labels": ["dog"] if i % 3 else [], "place": "it's" if i % 2 else None} for i in range(items)
    ]
    with Index.create(tmp_path / "x.kh", bits, form=form) as index:
        index.add(ids[:1500], codes[:1500], entries[:1500])
        index.compact()
        assert (index.stats().details["tables"] == 0) == (form == "scan")
        for part in slice(1500, 1750), slice(1750, items):  # the rows of one are in the order of ids, those of two not
            index.add(ids[part], codes[part], entries[part])
        assert index.remove([*ids[::7], "unknown"]) == len(ids[::7])
        codes[3::14] = make_codes("uniform", len(codes[3::14]), bits, seed=5)
        index.upsert(ids[3::14], codes[3::14], entries[3::14])
        here = [i for i in range(items) if i % 7 or i % 14 == 3]
        queries = np.concatenate((codes[1:3], make_codes("uniform", 2, bits, seed=6)))
        true = hamming(queries, codes)
        cases = [
            (1, None, None, lambda i: True),
            (10, None, None, lambda i: True),
            (10_000, None, None, lambda i: True),
            (10, bits // 4, None, lambda i: True),
            (10, None, "n = 7 and place = 'it''s'", lambda i: i % 50 == 7 and i % 2),
            (300, None, "not labels has 'dog' or place is null", lambda i: not i % 3 or not i % 2),
            (5, bits // 2, "n in (1, 2) and n > 1.5", lambda i: i % 50 == 2),
        ]
        real = outputs_near(queries, "ties" if kind == "clustered" else "tanh")
        by_weights = weighted(real, codes)
        differing = hamming(pack(real), codes)
        kinds = ((queries, true, true), (real, by_weights, differing))
        for compiled, (k, radius, text, keep), (given, away, bits_away) in product((False, True), cases, kinds):
            monkeypatch.setattr(scan, "_words_left", -1 if compiled else 1 << 40)
            for q, hits in enumerate(index.search(given, k, radius, text)):
                limit = bits if radius is None else radius
                best = sorted((int(away[q, i]), ids[i], i) for i in here if keep(i) and bits_away[q, i] <= limit)[:k]
                assert hits.ids == [name for _, name, _ in best]
                assert hits.distances.tolist() == [d for d, _, _ in best]
                assert hits.metadata == [entries[i] for _, _, i in best]
                assert hits.differing is not None and hits.proven
                assert hits.differing.tolist() == [bits_away[q, i] for _, _, i in best]
        single = index.search(queries[:1], 10)[0]
        assert single.ids == index.search(queries, 10)[0].ids


def test_numpy_scans_until_the_compiled_kernels_would_have_cost_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "ITEMS_AT_ONCE", 64)  # so that what one block leaves is the bound of the next
    monkeypatch.setattr(scan, "_words_left", 1000)
    codes = make_codes("clustered", 1000, 64)
    queries = word_queries(Queries(codes[:1]), 64)
    heaps = queries.new_heaps(30)
    scan.scan_with_numpy(queries, codes.view("<u8"), ALL, heaps)
    assert as_pairs(heaps[0], 64) == nearest(hamming(codes[:1], codes)[0], 30, 64)
    assert [scan.use_numpy(600), scan.use_numpy(400)] == [True, True]
    assert [scan.use_numpy(1), scan.use_numpy(0)] == [False, False]  # once compiled, always compiled


def test_scan_on_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kenthash.search.local.snapshot.SPLIT", 100)
    monkeypatch.setattr("kenthash.search.local.local_engine.cores", lambda: 3)
    codes = make_codes("clustered", 1000, 64)
    with Index.create(tmp_path / "x.kh", 64, form="scan") as index:
        index.add([f"{i:04}" for i in range(1000)], codes)
        index.compact()
        hits = index.search(codes[:1], 30)[0]
    assert list(zip(hits.distances.tolist(), map(int, hits.ids), strict=True)) == nearest(
        hamming(codes[:1], codes)[0], 30, 64
    )


def test_large_additions_reach_the_code_file_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codefile, "MAX_FRESH", 100)
    codes = make_codes("uniform", 300, 32)
    with Index.create(tmp_path / "x.kh", 32) as index:
        index.add([str(i) for i in range(300)], codes)
        assert index.search(codes[:1], 1)[0].ids == ["0"]
        assert index.stats().details["in the code file"] == 300


def test_a_search_after_an_upsert_reads_what_is_new(tmp_path: Path) -> None:
    """Not all that is beside the code file: by the steps that SQLite takes."""
    codes, steps = make_codes("uniform", 5000, 64), [0]

    def count_steps() -> int:
        steps[0] += 1
        return 0

    def steps_of_a_search() -> int:
        steps[0] = 0
        assert len(index.search(codes[:1], 3)[0]) == 3
        return steps[0]

    with Index.create(tmp_path / "x.kh", 64) as index:
        index.add([f"{i:04}" for i in range(5000)], codes)
        assert isinstance(index.engine, LocalEngine)
        with index.engine.connections.connection() as store:  # the one that the searches take
            store.connection.set_progress_handler(count_steps, 1)
        of_all, of_none = steps_of_a_search(), steps_of_a_search()
        index.upsert(["0007"], codes[:1])
        assert of_none < steps_of_a_search() < of_none + 200 < of_all


def test_empty_index_and_no_queries(tmp_path: Path) -> None:
    with Index.create(tmp_path / "x.kh", 64) as index:
        assert len(index.search(np.zeros((1, 8), np.uint8))[0]) == 0
        assert len(index.search(np.zeros((1, 8), np.uint8), filter="a = 1")[0]) == 0
        index.compact()
        assert index.search(np.zeros((0, 8), np.uint8)) == []


def test_a_filter_on_1_is_not_one_on_true(tmp_path: Path) -> None:
    """Python takes 1 and True for equal, and the items of one filter are cached for the next search."""
    codes = make_codes("uniform", 40, 64)
    with Index.create(tmp_path / "x.kh", 64) as index:
        index.add([f"{i:02}" for i in range(40)], codes, [{"flag": True if i % 2 else 1} for i in range(40)])
        for text, odd in (("flag = 1", 0), ("flag = true", 1), ("flag in (1, 2)", 0), ("flag in (true, 2)", 1)):
            for hits in index.search(codes, 40, filter=text):
                assert sorted(hits.ids) == [f"{i:02}" for i in range(odd, 40, 2)]


def test_many_hits_keep_their_own_names_and_metadata(tmp_path: Path) -> None:
    """More than the store reads as one value; text that JSON has to escape."""
    items = 2 * READ_ROWS + 3
    codes, names = make_codes("clustered", items, 64), [f'"{i}\\é' for i in range(items)]
    with Index.create(tmp_path / "many.kh", 64) as index:
        index.add(names, codes, [{"text": f'number "{i}"\n'} for i in range(items)])
        (hits,) = index.search(codes[:1], k=items)
        assert hits.codes is not None
        held = {
            name: (entry["text"], code.tobytes())
            for name, entry, code in zip(hits.ids, hits.metadata, hits.codes, strict=True)
        }
    assert held == {name: (f'number "{i}"\n', codes[i].tobytes()) for i, name in enumerate(names)}
