"""The checksums of a local index: of rows in SQLite, and of blocks of the code file.

**Rows.** SQLite has no checksums of its own (its pages do not show a changed letter). The code of an item is followed
by a CRC-32 of its row, id, metadata and code, and so is the code of a text, by one of its row, item, number and code; a
block of the order of ids by one of its key and rows; the notes have one together. Four bytes are the last of a value
that is there anyway: no column, and nothing else to read. They are compared whenever a row is read out: for an answer,
for a code file, for the words, and by `maintenance`. A CRC-32 shows every change within 32 consecutive bits, and any
other but for one in four billion.

**Blocks.** A block of a mapped file is compared when it is first read, so that a large file opens at once and yet no
damaged byte takes part in an answer. A block's checksum runs in four lanes over its 64-bit words, h ← mix(h ⊕ word),
where mix multiplies by an odd constant mod 2⁶⁴ and XORs the upper half onto the lower. Each step is invertible, so a
change of a single word always shows, and so do two flipped bits; other damage goes unnoticed with a probability of
about 2⁻⁶⁴. Compiled (`kernels`), it reads 11 GB/s on one core, three times as fast as the CRC-32 of zlib, and other
kernels can call it; where the kernels are not in use (see `scan`), numpy computes the same.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kenthash.search.local import scan
from kenthash.search.local.scan import Words

SEAL = 4  # bytes of the checksum of a row
BLOCK = 4096  # bytes
SUM = 8  # bytes of the checksum of a block
NUMPY_BLOCKS = 4096  # blocks that numpy computes at a time: 16 MiB
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def item_seal(row: int, id: str, metadata: str, code: bytes) -> bytes:
    return crc32(f"{row} {id}\n{metadata}".encode(), crc32(code)).to_bytes(SEAL, "little")


def text_seal(row: int, item: int, number: int, code: bytes) -> bytes:
    return crc32(f"{row} {item} {number}".encode(), crc32(code)).to_bytes(SEAL, "little")


def block_seal(first: str, rows: bytes) -> bytes:
    return crc32(first.encode(), crc32(rows)).to_bytes(SEAL, "little")


def notes_seal(notes: Mapping[str, str]) -> int:
    return crc32(json.dumps(sorted(notes.items())).encode())


class DamagedCodeFile(Exception):
    """A code file is missing, or not as it was written. This never leaves the engine, which rebuilds the file."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


def numpy_checksums(data: Words, first: int, last: int) -> Words:
    """The checksums of the blocks from first to last, by numpy: each step for all blocks together."""
    words = data[first * (BLOCK // 8) : last * (BLOCK // 8)].reshape(last - first, -1, 4)
    lanes = np.tile(np.arange(1, 5, dtype=np.uint64), (last - first, 1))
    for step in range(words.shape[1]):
        lanes = _mix(lanes ^ words[:, step])
    a, b, c, d = lanes.T
    return _mix(_mix(_mix(_mix(a) ^ b) ^ c) ^ d)


def _mix(h: Words) -> Words:
    h = h * MULTIPLIER
    return h ^ h >> np.uint64(32)


@dataclass(frozen=True)
class Blocks:
    path: Path
    data: Words  # what the checksums are of: a whole number of blocks
    sums: Words
    seen: NDArray[np.uint8]  # 1 for each block that has been compared and was intact

    def check(self, start: int, stop: int, pool: ThreadPoolExecutor | None = None, threads: int = 1) -> None:
        """Compare those blocks of the bytes from start to stop that have not been compared yet."""
        edges = [start + (stop - start) * i // threads for i in range(threads + 1)]

        def check_part(i: int) -> bool:
            return self._is_intact(edges[i], edges[i + 1])

        if not all(pool.map(check_part, range(threads)) if pool else map(check_part, range(threads))):
            raise DamagedCodeFile(self.path, "its content does not match its checksums")

    def check_entries(self, starts: NDArray[np.int64], size: int) -> None:
        """The same for entries of `size` bytes each, which begin at `starts`."""
        blocks = np.concatenate((starts // BLOCK, (starts + size - 1) // BLOCK))
        for block in set(blocks[self.seen[blocks] == 0].tolist()):
            self.check(block * BLOCK, (block + 1) * BLOCK)

    def _is_intact(self, start: int, stop: int) -> bool:
        if scan.is_compiled():
            from kenthash.search.local import kernels

            return bool(kernels.intact(self.data, self.sums, self.seen, start, stop))
        end = -(-stop // BLOCK)
        for first in range(start // BLOCK, end, NUMPY_BLOCKS):
            last = min(first + NUMPY_BLOCKS, end)
            if not self.seen[first:last].all():
                if not np.array_equal(numpy_checksums(self.data, first, last), self.sums[first:last]):
                    return False
                self.seen[first:last] = 1
        return True

    def fill(self, threads: int) -> None:
        """Compute all checksums."""
        if scan.use_numpy(len(self.data)):
            for first in range(0, len(self.sums), NUMPY_BLOCKS):
                last = min(first + NUMPY_BLOCKS, len(self.sums))
                self.sums[first:last] = numpy_checksums(self.data, first, last)
            return
        from kenthash.search.local import kernels

        edges = [len(self.sums) * i // threads for i in range(threads + 1)]
        with ThreadPoolExecutor(threads) as pool:
            list(
                pool.map(lambda i: kernels.fill_checksums(self.data, self.sums, edges[i], edges[i + 1]), range(threads))
            )


NO_WORDS = np.empty(0, np.uint64)
IN_MEMORY = Blocks(Path(), NO_WORDS, NO_WORDS, np.empty(0, np.uint8))  # of arrays that come from no file
