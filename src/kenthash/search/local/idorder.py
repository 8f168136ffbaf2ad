"""The order of ids in the SQLite file of a local index: which row has which id, at 3 bytes per item up to row
16,777,215 and 4 beyond.

An index of SQLite's own would hold every id a second time. This one holds rows only: the table `id_order` has blocks of
up to SIZE rows in the order of their ids, each in as many bytes as the largest of them needs, then that number, then a
checksum. The key of a block is not greater than the first of these ids and greater than the last id of the block
before. To find an id is to find its block by the key, and then its row by bisection, with the ids that the table
`items` holds. In effect the blocks are the leaves of a B-tree whose keys are kept elsewhere.

A block that grows too large is cut in equal parts; only where ids come in ascending order do blocks stay full. `repack`
makes all of them full again.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kenthash.search.local.checksums import SEAL, block_seal
from kenthash.search.local.sqlite import sqlite3

SIZE = 128  # rows of a block
FEW = 16  # ids for which a block is bisected; for more, all of its ids are read
MAX_READ = 1 << 16  # ids held in memory
FULL = 0.8  # share of SIZE that blocks hold on average, below which they are repacked
DIFFER = "its order of ids and its items differ"

COUNT = (  # the byte before the checksum is the number of bytes per row
    f"SELECT total((length(rows) - {SEAL} - 1) / CAST(hex(substr(rows, -{SEAL} - 1, 1)) AS INTEGER)) FROM id_order"
)
BLOCK_OF = "SELECT first, rows FROM id_order WHERE first <= ? ORDER BY first DESC LIMIT 1"
NEXT_BLOCK = "SELECT first FROM id_order WHERE first > ? ORDER BY first LIMIT 1"


class IdOrder:
    """The order of the ids as one connection sees it. Whoever changes it holds the writer's lock. What cannot be right
    is a DatabaseError, as of a file that SQLite itself finds damaged."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._ids: dict[int, str] = {}  # by row: some of those read in the current transaction

    def forget(self) -> None:
        """To be called when a transaction begins: after one that was undone, a row may get another id."""
        self._ids.clear()

    def rows(self) -> NDArray[np.int64]:
        """All rows, in the order of their ids."""
        blocks = self.connection.execute("SELECT first, rows FROM id_order ORDER BY first")
        return np.concatenate([np.empty(0, np.int64), *(_unpacked(first, blob) for first, blob in blocks)])

    def count(self) -> int:
        (size,) = self.connection.execute(COUNT).fetchone()
        return int(size)

    def rows_after(self, after: str, limit: int) -> list[int]:
        """The rows of up to `limit` ids that come after `after`, in order."""
        first, rows = self._block_of(after)
        rows = rows[self._place(rows, after) :]
        skipped = int(bool(rows) and self._id_of(rows[0]) == after)
        following = "SELECT first, rows FROM id_order WHERE first > ? ORDER BY first"
        for key, blob in self.connection.execute(following, (first,)):
            if len(rows) >= skipped + limit:
                break
            rows += _unpacked(key, blob).tolist()
        return rows[skipped : skipped + limit]

    def locate(self, ids: Sequence[str]) -> dict[str, int]:
        """The rows of those of the ids that exist."""
        located: dict[str, int] = {}
        for _, rows, names in self._by_block(sorted(ids)):
            if not rows or names[0] > self._id_of(rows[-1]):  # all come after, as new ids in order do
                continue
            if len(names) > FEW:  # then the block's ids have been read
                own = {self._ids[row]: row for row in rows}
                located |= {name: own[name] for name in names if name in own}
                continue
            for name in names:
                place = self._place(rows, name)
                if place < len(rows) and self._id_of(rows[place]) == name:
                    located[name] = rows[place]
        return located

    def blocks_of(self, ids: Iterable[str]) -> Iterator[list[int]]:
        """The rows of each block that ids belong to, whether they exist or not."""
        for _, rows, _ in self._by_block(sorted(ids)):
            yield rows

    def put(self, ids: Sequence[str], rows: Sequence[int]) -> None:
        """Put rows in, whose ids are new and in order. The table `items` holds them already."""
        new = dict(zip(ids, rows, strict=True))
        for first, old, names in self._by_block(ids):
            at_end = not old or names[0] > self._id_of(old[-1])
            if at_end:
                merged = old + [new[name] for name in names]
            elif len(names) <= FEW:
                merged = old[:]
                for name in names:
                    merged.insert(self._place(merged, name), new[name])
                    self._ids[new[name]] = name
            else:
                self._read_ids(old)
                rows_by_id = {self._ids[row]: row for row in old} | {name: new[name] for name in names}
                merged = [rows_by_id[name] for name in sorted(rows_by_id)]
            # Ids that come in ascending order leave full blocks behind.
            ascending = at_end and self._next_first(first) is None
            self._write(first, merged, SIZE if ascending else -(-len(merged) // -(-len(merged) // SIZE)))

    def remove(self, ids: Sequence[str]) -> list[int]:
        """Take ids out; the rows of those that existed."""
        located = self.locate(ids)
        gone = set(located.values())
        for first, rows, _ in self._by_block(sorted(located)):
            remaining = [row for row in rows if row not in gone]
            if remaining or first == "":
                self._write(first, remaining, SIZE)
            else:
                self.connection.execute("DELETE FROM id_order WHERE first = ?", (first,))
        return sorted(gone)

    def repack(self) -> None:
        """Fill the blocks again, where they are much less than full."""
        (blocks,) = self.connection.execute("SELECT count(*) FROM id_order").fetchone()
        if self.count() < FULL * SIZE * (blocks - 1):
            rows = self.rows().tolist()
            self.connection.execute("DELETE FROM id_order")
            self._write("", rows, SIZE)

    def rebuild(self) -> None:
        """Make all blocks again from the items."""
        rows = [row for (row,) in self.connection.execute("SELECT row FROM items ORDER BY id")]
        self.connection.execute("DELETE FROM id_order")
        self._write("", rows, SIZE)

    def _by_block(self, ids: Sequence[str]) -> Iterator[tuple[str, list[int], Sequence[str]]]:
        """Key and rows of each block that ids, which are in order, belong to, with these ids."""
        start = 0
        while start < len(ids):
            if len(self._ids) > MAX_READ:
                self._ids.clear()
            first, rows = self._block_of(ids[start])
            following = self._next_first(first)
            end = len(ids) if following is None else bisect_left(ids, following, start)
            if end - start > FEW and rows and ids[start] <= self._id_of(rows[-1]):
                self._read_ids(rows)
            yield first, rows, ids[start:end]
            start = end

    def _block_of(self, name: str) -> tuple[str, list[int]]:
        block = self.connection.execute(BLOCK_OF, (name,)).fetchone()
        return (block[0], _unpacked(*block).tolist()) if block else ("", [])

    def _next_first(self, first: str) -> str | None:
        following = self.connection.execute(NEXT_BLOCK, (first,)).fetchone()
        return str(following[0]) if following else None

    def _write(self, first: str, rows: list[int], size: int) -> None:
        """Write rows as blocks of `size`, the first of which has the key `first`."""
        starts = range(0, max(len(rows), 1), size)
        self._read_ids([rows[start] for start in starts[1:]])
        keys = [first, *(self._id_of(rows[start]) for start in starts[1:])]
        blocks = ((key, _packed(key, rows[start : start + size])) for key, start in zip(keys, starts, strict=True))
        self.connection.executemany("INSERT OR REPLACE INTO id_order VALUES (?, ?)", blocks)

    def _place(self, rows: list[int], name: str) -> int:
        return bisect_left(rows, name, key=self._id_of)

    def _id_of(self, row: int) -> str:
        name = self._ids.get(row)
        if name is None:
            (name,) = self.connection.execute("SELECT id FROM items WHERE row = ?", (row,)).fetchone() or (None,)
            if not isinstance(name, str):
                raise sqlite3.DatabaseError(DIFFER)
            self._ids[row] = name
        return name

    def _read_ids(self, rows: Sequence[int]) -> None:
        missing = [row for row in rows if row not in self._ids]
        if not missing:
            return
        select = "SELECT row, id FROM items WHERE row IN (SELECT value FROM json_each(?))"
        self._ids.update(self.connection.execute(select, (json.dumps(missing),)))
        if not all(type(self._ids.get(row)) is str for row in missing):
            raise sqlite3.DatabaseError(DIFFER)


def _unpacked(first: object, blob: object) -> NDArray[np.int64]:
    """The rows of a block, whose key is `first`."""
    if not (isinstance(first, str) and isinstance(blob, bytes) and len(blob) > SEAL):
        raise sqlite3.DatabaseError("its order of ids is not readable")
    content = blob[:-SEAL]
    if blob[-SEAL:] != block_seal(first, content):
        raise sqlite3.DatabaseError("its order of ids does not match its checksums")
    width = content[-1]
    padded = np.zeros((len(content[:-1]) // width, 8), np.uint8)
    padded[:, :width] = np.frombuffer(content[:-1], np.uint8).reshape(-1, width)
    return padded.view("<i8")[:, 0]


def _packed(first: str, rows: list[int]) -> bytes:
    width = max(1, -(-max(rows, default=0).bit_length() // 8))
    numbers = np.array(rows, "<i8").view(np.uint8).reshape(-1, 8)
    content = numbers[:, :width].tobytes() + bytes([width])
    return content + block_seal(first, content)
