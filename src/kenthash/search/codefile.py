"""The code file beside the store: codes in the order of ids, their rows, and the tables of multi-index hashing.

It is a cache, mapped into memory, so an index opens in no time whatever its size. It says of which store it was made
and up to which mark; the store names the file and tells what came after. A file of another store, of another format,
or cut short is not used but made anew: the store is the truth. It is flushed to disk before the store names it.
"""

import json
import os
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import KenthashError
from kenthash.files import atomic_write
from kenthash.search import mih
from kenthash.search.kernels import Words
from kenthash.search.mih_kernels import Cuts
from kenthash.search.store import Mark, Store

FORMAT = "kenthash codes 1"
CHUNK = 1 << 16  # rows read from the store at a time
PAGE = 4096  # the header, and what arrays are aligned to


@dataclass(frozen=True)
class Header:
    identity: str  # of the store
    row: int  # the mark up to which it was made
    removal: int
    bits: int
    items: int
    row_bytes: int
    cuts: list[list[int]]  # of the tables; empty where there are none
    copies: bool  # the fast form

    def layout(self) -> dict[str, tuple[int, str, tuple[int, ...]]]:
        """Offset, type and shape of each array."""
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
            size = int(np.prod(shape)) * int(kind[2:])
            place += -(-size // PAGE) * PAGE
        return layout | {"end": (place, "<u1", (0,))}

    @property
    def table_cuts(self) -> Cuts:
        return np.array(self.cuts, np.int64).reshape(-1, 3)

    def encoded(self) -> bytes:
        text = json.dumps(asdict(self)).encode()
        return f"{FORMAT} {len(text)} {zlib.crc32(text)}\n".encode() + text


@dataclass(frozen=True)
class CodeFile:
    mark: Mark
    codes: Words  # [N, W], in the order of ids
    rows: NDArray[Any]  # [N]
    tables: mih.Tables | None
    bytes: int


def empty(words: int) -> CodeFile:
    """What there is before there is a file."""
    return CodeFile(Mark(0, 0), np.empty((0, words), np.uint64), np.empty(0, np.uint32), None, 0)


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
    reader = store.codes_by_row()
    while part := reader.fetchmany(CHUNK):
        codes[slots[place : place + len(part)]] = to_words(b"".join(c for (c,) in part), len(part), store.bits)
        place += len(part)
    return rows, codes


def write(
    path: Path, identity: str, mark: Mark, bits: int, codes: Words, rows: NDArray[np.int64], cuts: Cuts,
    fast: bool, threads: int,
) -> None:  # fmt: skip
    """Write a code file with the tables that `cuts` ask for; `fast` puts copies of the codes into them."""
    header = Header(
        identity, mark.row, mark.removal, bits, len(codes), 4 if mark.row < 1 << 32 else 8, cuts.tolist(),
        fast and codes.shape[1] == 1,
    )  # fmt: skip
    layout = header.layout()
    try:
        with atomic_write(path, "w+b") as stream:
            _reserve(stream.fileno(), layout["end"][0])
            whole = np.memmap(stream, np.uint8, "r+")
            head = header.encoded()
            whole[: len(head)] = np.frombuffer(head, np.uint8)
            arrays = _arrays(whole, layout)
            arrays["codes"][:] = codes
            arrays["rows"][:] = rows
            if len(cuts):
                mih.fill(_tables(cuts, arrays), arrays["codes"], threads)
            whole.flush()
    except OSError as error:
        raise KenthashError(f"{path}: cannot be written: {error.strerror or error}") from error


def _reserve(descriptor: int, size: int) -> None:
    """Take the room now: where a disk is full, writing to a mapped file without it would end the process (SIGBUS)."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def read(path: Path, identity: str, bits: int) -> CodeFile | None:
    """Map a code file, or None where there is none that is whole and of this store."""
    try:
        with path.open("rb") as stream:
            title, _, text = stream.read(PAGE).partition(b"\n")
            name, size, checksum = title.decode().rsplit(" ", 2)
            text = text[: int(size)]
            if name != FORMAT or zlib.crc32(text) != int(checksum):
                return None
            header = Header(**json.loads(text))
            layout = header.layout()
            if header.identity != identity or header.bits != bits or path.stat().st_size != layout["end"][0]:
                return None
            arrays = _arrays(np.memmap(stream, np.uint8, "r"), layout)
    except (OSError, ValueError, TypeError):
        return None
    tables = _tables(header.table_cuts, arrays) if header.cuts else None
    mark = Mark(header.row, header.removal)
    return CodeFile(mark, arrays["codes"], arrays["rows"], tables, layout["end"][0])


def _tables(cuts: Cuts, arrays: dict[str, NDArray[Any]]) -> mih.Tables:
    return mih.Tables(cuts, arrays["offsets"], arrays["low"], arrays["high"], arrays["copies"])


def _arrays(whole: NDArray[np.uint8], layout: dict[str, tuple[int, str, tuple[int, ...]]]) -> dict[str, NDArray[Any]]:
    arrays = {}
    for name, (place, kind, shape) in layout.items():
        size = int(np.prod(shape)) * int(kind[2:])
        # Plain arrays, not memmaps: kernels are compiled for one type of array, and slices stay cheap.
        arrays[name] = np.asarray(whole[place : place + size]).view(np.ndarray).view(kind).reshape(shape)
    return arrays
