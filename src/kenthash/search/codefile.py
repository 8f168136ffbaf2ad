"""The code file beside the store: codes in the order of ids, their rows, and the tables of multi-index hashing.

It is a cache, mapped into memory, so an index opens in no time whatever its size. The store names the file, and tells
what came after the mark up to which it was made. It also holds a digest of the file's header and checksums, and the
checksums are of everything else. So whatever is read of the file is what was written to it, or the file is not used but
made anew: the store is the truth. It is flushed to disk before the store names it.
"""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import KenthashError
from kenthash.files import atomic_write
from kenthash.search import mih, scan
from kenthash.search.blocks import BLOCK, SUM, Blocks, Damaged
from kenthash.search.mih import Cuts
from kenthash.search.scan import Keys, Words
from kenthash.search.schema import FileState, damaged, file_state
from kenthash.search.store import Mark, Store

FORMAT = b"kenthash codes 2\n"
CHUNK = 1 << 16  # rows read from the store at a time
PAGE = 4096  # the header, and what arrays are aligned to
Layout = dict[str, tuple[int, str, tuple[int, ...]]]  # offset, type and shape of each array


@dataclass(frozen=True)
class Header:
    row: int  # the mark up to which it was made
    removal: int
    last_row: int  # of the items in it
    bits: int
    items: int
    row_bytes: int
    cuts: list[list[int]]  # of the tables; empty where there are none
    copies: bool  # the fast form

    def layout(self) -> Layout:
        words, m = -(-self.bits // 64), len(self.cuts)
        arrays: dict[str, tuple[str, tuple[int, ...]]] = {
            "codes": ("<u8", (self.items, words)),
            "rows": (f"<u{self.row_bytes}", (self.items,)),
            "offsets": ("<u4", (mih.offsets_size(self.table_cuts),)),
            "low": ("<u2", (m, self.items)),
            "high": (f"<u{mih.high_bytes(self.items)}", (m, self.items)),
            "copies": ("<u8", (m, self.items if self.copies else 0)),
        }
        layout, place = {}, PAGE
        for name, (kind, shape) in arrays.items():
            layout[name] = (place, kind, shape)
            place += -(-_size(kind, shape) // PAGE) * PAGE
        blocks = -(-(place - PAGE) // BLOCK)
        layout["data"] = (PAGE, "<u8", (blocks * BLOCK // 8,))
        layout["sums"] = (PAGE + blocks * BLOCK, "<u8", (blocks,))
        layout["end"] = (PAGE + blocks * (BLOCK + SUM), "<u1", (0,))
        return layout

    @property
    def table_cuts(self) -> Cuts:
        return np.array(self.cuts, np.int64).reshape(-1, 3)

    def encoded(self) -> bytes:
        return (FORMAT + json.dumps(asdict(self)).encode()).ljust(PAGE, b"\0")


@dataclass(frozen=True)
class Mapped:
    """Where the arrays of a code file come from."""

    state: FileState
    digest: str
    whole: NDArray[np.uint8]
    blocks: Blocks
    layout: Layout
    checked: set[str] = field(default_factory=set)  # arrays of which every block has been

    def changed(self) -> bool:
        """Whether somebody has written to the file, which nobody should. A file that is gone is still mapped."""
        return file_state(self.blocks.path) not in (self.state, ())

    def check(self, name: str, pool: ThreadPoolExecutor | None = None, threads: int = 1) -> None:
        """Compare an array with its checksums, unless that has been done."""
        if name not in self.checked:
            place, kind, shape = self.layout[name]
            self.blocks.check(place - PAGE, place - PAGE + _size(kind, shape), pool, threads)
            self.checked.add(name)

    def check_again(self) -> None:
        """Compare everything anew."""
        if _digest(self.whole[:PAGE], self.blocks.sums) != self.digest:
            raise Damaged(self.blocks.path, "its header or its checksums have changed")
        self.blocks.seen[:] = 0
        self.blocks.check(0, self.blocks.data.nbytes)


@dataclass(frozen=True)
class CodeFile:
    """What is read of codes, rows and offsets must have been checked before."""

    mark: Mark
    codes: Words  # [N, W], in the order of ids
    rows: NDArray[Any]  # [N]
    tables: mih.Tables | None
    bytes: int = 0
    last_row: int = 0
    mapped: Mapped | None = None  # nothing to check in what is only in memory

    def check(self, name: str, pool: ThreadPoolExecutor | None = None, threads: int = 1) -> None:
        if self.mapped is not None:
            self.mapped.check(name, pool, threads)

    def found(self, heap: Keys, radius: int) -> tuple[list[int], list[int]]:
        """Rows and distances of a finished heap, in order."""
        slots, distances = scan.found(heap, radius)
        if self.mapped is not None:
            size = self.rows.itemsize
            self.mapped.blocks.check_entries(self.mapped.layout["rows"][0] - PAGE + slots * size, size)
        return self.rows[slots].tolist(), distances.tolist()


def empty(words: int) -> CodeFile:
    """What there is before there is a file."""
    return CodeFile(Mark(0, 0), np.empty((0, words), np.uint64), np.empty(0, np.uint32), None)


def to_words(codes: bytes, items: int, bits: int) -> Words:
    """Packed codes as rows of 64-bit words, padded with zeros."""
    width = bits // 8
    padded = np.zeros((items, -(-bits // 64) * 8), np.uint8)
    padded[:, :width] = np.frombuffer(codes, np.uint8).reshape(items, width)
    return padded.view("<u8")


def sorted_codes(store: Store) -> tuple[NDArray[np.int64], Words]:
    """All rows and codes of the store's current transaction, in the order of ids."""
    rows = store.rows_by_id()
    slots = np.argsort(rows)  # of the items in the order of rows
    codes, place = np.empty((len(rows), -(-store.bits // 64)), np.uint64), 0
    for some, blob in store.codes_by_row(CHUNK):
        part = slots[place : place + len(some)]
        if not np.array_equal(rows[part], some):
            raise damaged(store.path, "its index of ids and its items differ")
        codes[part] = to_words(blob, len(part), store.bits)
        place += len(part)
    if place < len(rows) or (place and rows[slots[-1]] > store.mark().row):
        raise damaged(store.path, "its index of ids and its items differ")
    return rows, codes


def write(
    path: Path, mark: Mark, bits: int, codes: Words, rows: NDArray[np.int64], cuts: Cuts, fast: bool, threads: int
) -> str:
    """Write a code file with the tables that `cuts` ask for; `fast` puts copies of the codes into them. Its digest."""
    header = Header(
        mark.row, mark.removal, int(rows.max(initial=0)), bits, len(codes), 4 if mark.row < 1 << 32 else 8,
        cuts.tolist(), fast and codes.shape[1] == 1,
    )  # fmt: skip
    layout = header.layout()
    try:
        with atomic_write(path, "w+b") as stream:
            _reserve(stream.fileno(), layout["end"][0])
            whole = np.memmap(stream, np.uint8, "r+")
            whole[:PAGE] = np.frombuffer(header.encoded(), np.uint8)
            arrays = _arrays(whole, layout)
            arrays["codes"][:] = codes
            arrays["rows"][:] = rows
            if len(cuts):
                tables = mih.Tables(cuts, arrays["offsets"], arrays["low"], arrays["high"], arrays["copies"])
                mih.fill(tables, arrays["codes"], threads)
            Blocks(path, arrays["data"], arrays["sums"], np.empty(0, np.uint8)).fill(threads)
            digest = _digest(whole[:PAGE], arrays["sums"])
            whole.flush()
    except OSError as error:
        raise KenthashError(f"{path}: cannot be written: {error.strerror or error}") from error
    return digest


def _reserve(descriptor: int, size: int) -> None:
    """Take the room now: where a disk is full, writing to a mapped file without it would end the process (SIGBUS)."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def read(path: Path, digest: str) -> CodeFile:
    """Map the code file that had this digest of header and checksums when it was written.

    Both are found without looking into the header: a file has its length from the number of its blocks.
    """
    try:
        with path.open("rb") as stream:
            if stream.read(len(FORMAT)) != FORMAT:
                raise Damaged(path, "it is not a code file of this version")
            count, rest = divmod(os.fstat(stream.fileno()).st_size - PAGE, BLOCK + SUM)
            if count < 0 or rest:
                raise Damaged(path, "it is not as long as it should be")
            whole = np.memmap(stream, np.uint8, "r")
            state = file_state(path)
    except OSError as error:
        raise Damaged(path, f"it cannot be read: {error.strerror or error}") from error
    if _digest(whole[:PAGE], whole[PAGE + count * BLOCK :]) != digest:
        raise Damaged(path, "it is not the one that was written for this index")
    header = Header(**json.loads(whole[len(FORMAT) : PAGE].tobytes().rstrip(b"\0")))
    layout = header.layout()
    arrays = _arrays(whole, layout)
    blocks = Blocks(path, arrays["data"], arrays["sums"], np.zeros(len(arrays["sums"]), np.uint8))
    tables = None
    if header.cuts:
        names = ("low", "high", "copies") if header.copies else ("low", "high")
        places = [(layout[name][0] - PAGE, arrays[name].itemsize) for name in names]
        checks = mih.checks(blocks, arrays["low"].size, places)
        tables = mih.Tables(
            header.table_cuts, arrays["offsets"], arrays["low"], arrays["high"], arrays["copies"], checks
        )
    mapped = Mapped(state, digest, whole, blocks, layout)
    mark = Mark(header.row, header.removal)
    return CodeFile(mark, arrays["codes"], arrays["rows"], tables, layout["end"][0], header.last_row, mapped)


def _digest(head: NDArray[np.uint8], sums: NDArray[Any]) -> str:
    total = hashlib.sha256(head.data)
    total.update(sums.data)
    return total.hexdigest()


def _size(kind: str, shape: tuple[int, ...]) -> int:
    return int(np.prod(shape)) * int(kind[2:])


def _arrays(whole: NDArray[np.uint8], layout: Layout) -> dict[str, NDArray[Any]]:
    arrays = {}
    for name, (place, kind, shape) in layout.items():
        # Plain arrays, not memmaps: kernels are compiled for one type of array, and slices stay cheap.
        part = np.asarray(whole[place : place + _size(kind, shape)]).view(np.ndarray)
        arrays[name] = part.view(kind).reshape(shape)
    return arrays
