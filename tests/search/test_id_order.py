"""The order of ids against a sorted list, through many changes, and what it takes on disk."""

from pathlib import Path

import numpy as np
from brute_force import Metadata
from hypothesis import given, settings
from hypothesis import strategies as st

from kenthash.search import Index
from kenthash.search.local.idorder import SIZE, IdOrder
from kenthash.search.local.schema import MIGRATIONS
from kenthash.search.local.sqlite import sqlite3

names = st.text("abé日😀", min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.sets(names, max_size=400)), max_size=8), names, st.integers(1, 400))
def test_against_a_sorted_list(changes: list[tuple[bool, set[str]]], after: str, limit: int) -> None:
    connection = sqlite3.connect(":memory:")
    for statement in ";".join(MIGRATIONS).split(";"):
        connection.execute(statement)
    order, rows = IdOrder(connection), dict[str, int]()
    last = 2**24 - 300  # around which rows take three bytes or four
    for is_addition, ids in changes:
        if is_addition:
            new = sorted(ids - rows.keys())
            numbers = list(range(last + 1, last + 1 + len(new)))
            last += len(new)
            connection.executemany("INSERT INTO items VALUES (?, ?, '', '')", zip(numbers, new, strict=True))
            order.put(new, numbers)
            rows.update(zip(new, numbers, strict=True))
        else:
            gone = [rows.pop(name) for name in ids if name in rows]
            assert order.remove(list(ids)) == sorted(gone)
            connection.executemany("DELETE FROM items WHERE row = ?", [(row,) for row in gone])
        assert order.locate(list(ids)) == {name: rows[name] for name in ids if name in rows}
    for _ in range(2):
        assert order.rows().tolist() == [rows[name] for name in sorted(rows)] and order.count() == len(rows)
        assert order.rows_after(after, limit) == [rows[name] for name in sorted(rows) if name > after][:limit]
        order.repack()
    connection.close()


def test_at_most_24_bytes_beyond_id_code_and_metadata(tmp_path: Path) -> None:
    """Ids of 24 bytes that come in no order, 64-bit codes, and metadata as in docs/scale.md."""
    rng, items = np.random.default_rng(0), 40_000
    ids = [f"pictures/2024/{number:06}.jpg" for number in rng.permutation(items).tolist()]
    entry: Metadata = {
        "place": "beach",
        "year": 2024,
        "labels": ["dog", "kite"],
        "author": "somebody",
        "note": "by the sea",
    }
    with Index.create(tmp_path / "x.kh", 64) as index:
        for start in range(0, items, 10_000):
            codes = rng.integers(0, 256, (10_000, 8), np.uint8)
            index.add(ids[start : start + 10_000], codes, [entry] * 10_000)
        index.compact()
    with sqlite3.connect(tmp_path / "x.kh") as connection:
        (metadata,) = connection.execute("SELECT sum(length(metadata)) FROM items").fetchone()
        (blocks,) = connection.execute("SELECT count(*) FROM id_order").fetchone()
    connection.close()
    assert (tmp_path / "x.kh").stat().st_size - items * (24 + 8) - metadata <= 24 * items
    assert blocks == -(-items // SIZE)
