"""The code file beside the store: codes in the order of ids, their rows, and the tables of multi-index hashing. Where
items are found in two stages (see `snapshot`), the bits beyond the first are in an array of their own, at the end.

It is a cache, mapped into memory, so an index opens at once whatever its size. The store, which holds the truth, names
the file that counts, and tells what changed after the mark up to which the file was made. It also holds a digest of the
file's header and checksums, and the checksums are of everything else. So whatever is read from the file is what was
written to it; otherwise the file is not used but rebuilt. It is flushed to disk before the store names it.

Each code file has its own name; file and name change together, in one transaction of the store (`compact`).
"""

import glob
import hashlib
import json
import logging
import mmap
import os
import re
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import KenthashError
from kenthash.files import atomic_write
from kenthash.search.local import mih, scan
from kenthash.search.local.checksums import BLOCK, SUM, Blocks, DamagedCodeFile
from kenthash.search.local.mih import Cuts
from kenthash.search.local.scan import Words, split_words
from kenthash.search.local.schema import FileIdentity, damaged, file_identity
from kenthash.search.local.store import Mark, Store

logger = logging.getLogger(__name__)

FORMAT = b"kenthash codes 2\n"
CHUNK = 1 << 16  # rows read from the store at a time
PAGE = 4096  # bytes of the header; arrays are aligned to as many
STAMP = 12  # hexadecimal digits in the name of a code file
MAX_FRESH = 50_000  # items outside the code file before a search has it rebuilt ...
SHARE = 32  # ... or, if that is more, 1/SHARE of the items in it
Layout = dict[str, tuple[int, str, tuple[int, ...]]]  # offset, type and shape of each array


@dataclass(frozen=True)
class Header:
    row: int  # with `removal`, the mark up to which the file was made
    removal: int
    last_row: int  # the largest row in it
    bits: int
    items: int
    row_bytes: int
    cuts: list[list[int]]  # of the tables; empty where there are no tables
    copies: bool  # whether the tables hold copies of the codes (the fast form)
    rest_bits: int = 0  # beyond `bits`; none in files of earlier versions

    def layout(self) -> Layout:
        words, m = -(-self.bits // 64), len(self.cuts)
        arrays: dict[str, tuple[str, tuple[int, ...]]] = {
            "codes": ("<u8", (self.items, words)),
            "rows": (f"<u{self.row_bytes}", (self.items,)),
            "offsets": ("<u4", (mih.offsets_size(self.table_cuts),)),
            "low": ("<u2", (m, self.items)),
            "high": (f"<u{mih.high_bytes(self.items)}", (m, self.items)),
            "copies": ("<u8", (m, self.items if self.copies else 0)),
            "rest": ("<u8", (self.items, -(-self.rest_bits // 64))),
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
class MappedFile:
    """The file from which the arrays of a code file are mapped."""

    state: FileIdentity
    digest: str
    content: NDArray[np.uint8]
    blocks: Blocks
    layout: Layout
    checked: set[str] = field(default_factory=set)  # arrays of which every block has been compared

    def is_changed(self) -> bool:
        """Whether the file was written to, which nobody should do. A file that was deleted is still mapped."""
        return file_identity(self.blocks.path) not in (self.state, ())

    def check(self, name: str, pool: ThreadPoolExecutor | None = None, threads: int = 1) -> None:
        """Compare an array with its checksums, unless that was done before."""
        if name not in self.checked:
            place, kind, shape = self.layout[name]
            self.blocks.check(place - PAGE, place - PAGE + _size(kind, shape), pool, threads)
            self.checked.add(name)

    def check_everything(self) -> None:
        """Compare the whole file with its checksums, also what was compared before."""
        if _digest(self.content[:PAGE], self.blocks.sums) != self.digest:
            raise DamagedCodeFile(self.blocks.path, "its header or its checksums have changed")
        self.blocks.seen[:] = 0
        self.blocks.check(0, self.blocks.data.nbytes)


@dataclass(frozen=True)
class CodeFile:
    """Whoever reads codes, rows or offsets calls `check` first."""

    mark: Mark
    codes: Words  # [N, W], in the order of ids
    rows: NDArray[Any]  # [N]
    rest_codes: Words  # [N, W']: the bits beyond the first, which are read for candidates only
    tables: mih.Tables | None
    bytes: int = 0
    last_row: int = 0
    mapped: MappedFile | None = None  # None where the arrays are in memory: nothing to check

    def check(self, name: str, pool: ThreadPoolExecutor | None = None, threads: int = 1) -> None:
        if self.mapped is not None:
            self.mapped.check(name, pool, threads)

    @cached_property
    def whole(self) -> "CodeFile":
        """A copy with whole codes in memory, the first bits and the rest in words of their own, and without tables."""
        self.check("codes")
        self.check("rest")
        codes = np.concatenate((self.codes, self.rest_codes), axis=1)
        return replace(self, codes=codes, rest_codes=self.rest_codes[:, :0], tables=None)

    def rows_of(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        self._check_entries("rows", slots)
        return self.rows[slots].astype(np.int64)

    def check_rest(self, slots: NDArray[np.int64]) -> None:
        self._check_entries("rest", slots)

    def _check_entries(self, name: str, slots: NDArray[np.int64]) -> None:
        if self.mapped is not None and len(slots):
            place, kind, shape = self.mapped.layout[name]
            size = _size(kind, shape) // shape[0]
            self.mapped.blocks.check_entries(place - PAGE + slots * size, size)


def empty_code_file(words: int, rest_words: int) -> CodeFile:
    """A code file in memory without items: used before there is a file."""
    rows = np.empty(0, np.uint32)
    return CodeFile(Mark(0, 0), np.empty((0, words), np.uint64), rows, np.empty((0, rest_words), np.uint64), None)


def sorted_codes(store: Store) -> tuple[NDArray[np.int64], Words, Words]:
    """All rows and codes of the store's current transaction, in the order of ids; of codes, the first bits and the
    rest."""
    rows = store.rows_by_id()
    slots = np.argsort(rows)  # of the items in the order of rows
    codes, rest_codes = (np.empty((len(rows), words), np.uint64) for words in store.words)
    filled = 0
    for chunk_rows, blob in store.codes_by_row(CHUNK):
        chunk = slots[filled : filled + len(chunk_rows)]
        if not np.array_equal(rows[chunk], chunk_rows):
            raise damaged(store.path, "its index of ids and its items differ")
        packed = np.frombuffer(blob, np.uint8).reshape(len(chunk), -1)
        codes[chunk], rest_codes[chunk] = split_words(packed, store.bits)
        filled += len(chunk)
    if filled < len(rows) or (filled and rows[slots[-1]] > store.mark().row):
        raise damaged(store.path, "its index of ids and its items differ")
    return rows, codes, rest_codes


def write_code_file(
    path: Path,
    mark: Mark,
    bits: tuple[int, int],
    codes: Words,
    rest_codes: Words,
    rows: NDArray[np.int64],
    cuts: Cuts,
    fast: bool,
    threads: int,
) -> str:
    """Write a code file of codes with `bits`, those of the first stage and of the rest, and one table for each of
    `cuts`; `fast` puts copies of the codes into them. Returns its digest, which `read_code_file` takes."""
    header = Header(
        mark.row, mark.removal, int(rows.max(initial=0)), bits[0], len(codes), 4 if mark.row < 1 << 32 else 8,
        cuts.tolist(), fast and codes.shape[1] == 1, bits[1],
    )  # fmt: skip
    layout = header.layout()
    try:
        with atomic_write(path, "w+b") as stream:
            _reserve(stream.fileno(), layout["end"][0])
            content = np.memmap(stream, np.uint8, "r+")
            content[:PAGE] = np.frombuffer(header.encoded(), np.uint8)
            arrays = _arrays(content, layout)
            arrays["codes"][:] = codes
            arrays["rest"][:] = rest_codes
            arrays["rows"][:] = rows
            if len(cuts):
                tables = mih.Tables(cuts, arrays["offsets"], arrays["low"], arrays["high"], arrays["copies"])
                mih.fill_tables(tables, arrays["codes"], threads)
            Blocks(path, arrays["data"], arrays["sums"], np.empty(0, np.uint8)).fill(threads)
            digest = _digest(content[:PAGE], arrays["sums"])
            content.flush()
    except OSError as error:
        raise KenthashError(f"{path}: cannot be written: {error.strerror or error}") from error
    return digest


def _reserve(descriptor: int, size: int) -> None:
    """Allocate the space now: where a disk is full, writing to a mapped file would end the process (SIGBUS)."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def read_code_file(path: Path, digest: str) -> CodeFile:
    """Map the code file that had this digest of header and checksums when it was written.

    The place of the checksums follows from the length of the file, so the header is not read before it is checked.
    """
    try:
        with path.open("rb") as stream:
            if stream.read(len(FORMAT)) != FORMAT:
                raise DamagedCodeFile(path, "it is not a code file of this version")
            count, remainder = divmod(os.fstat(stream.fileno()).st_size - PAGE, BLOCK + SUM)
            if count < 0 or remainder:
                raise DamagedCodeFile(path, "it is not as long as it should be")
            content = np.memmap(stream, np.uint8, "r")
            state = file_identity(path)
    except OSError as error:
        raise DamagedCodeFile(path, f"it cannot be read: {error.strerror or error}") from error
    if _digest(content[:PAGE], content[PAGE + count * BLOCK :]) != digest:
        raise DamagedCodeFile(path, "it is not the one that was written for this index")
    header = Header(**json.loads(content[len(FORMAT) : PAGE].tobytes().rstrip(b"\0")))
    layout = header.layout()
    arrays = _arrays(content, layout)
    blocks = Blocks(path, arrays["data"], arrays["sums"], np.zeros(len(arrays["sums"]), np.uint8))
    tables = None
    if header.cuts:
        names = ("low", "high", "copies") if header.copies else ("low", "high")
        places = [(layout[name][0] - PAGE, arrays[name].itemsize) for name in names]
        checks = mih.new_checks(blocks, arrays["low"].size, places)
        tables = mih.Tables(
            header.table_cuts, arrays["offsets"], arrays["low"], arrays["high"], arrays["copies"], checks
        )
    mapped = MappedFile(state, digest, content, blocks, layout)
    mark = Mark(header.row, header.removal)
    if header.rest_bits and header.items and hasattr(mmap, "MADV_RANDOM") and isinstance(content.base, mmap.mmap):
        # A candidate needs one page: the system should not read the ones around it as well.
        place, kind, shape = layout["rest"]
        content.base.madvise(mmap.MADV_RANDOM, place, _size(kind, shape))
    return CodeFile(
        mark, arrays["codes"], arrays["rows"], arrays["rest"], tables, layout["end"][0], header.last_row, mapped
    )


def _digest(head: NDArray[np.uint8], sums: NDArray[Any]) -> str:
    total = hashlib.sha256(head.data)
    total.update(sums.data)
    return total.hexdigest()


def _size(kind: str, shape: tuple[int, ...]) -> int:
    return int(np.prod(shape)) * int(kind[2:])


def _arrays(content: NDArray[np.uint8], layout: Layout) -> dict[str, NDArray[Any]]:
    arrays = {}
    for name, (place, kind, shape) in layout.items():
        # Plain arrays, not memmaps: kernels are compiled for one type of array, and slicing a memmap is slow.
        part = np.asarray(content[place : place + _size(kind, shape)]).view(np.ndarray)
        arrays[name] = part.view(kind).reshape(shape)
    return arrays


def current_code_file(store: Store) -> CodeFile | None:
    """The code file that the store names, if any; DamagedCodeFile where it is missing or not as it was written."""
    path = current_path(store)
    return None if path is None else read_code_file(path, str(store.about("codes_digest")))


def current_path(store: Store) -> Path | None:
    """The path of the code file that the store names."""
    stamp = str(store.about("codes") or "")
    if stamp and not re.fullmatch(f"[0-9a-f]{{{STAMP}}}", stamp):
        raise damaged(store.path, f"it names the code file {stamp[:20]!r}")
    return _path(store, stamp) if stamp else None


def is_far_behind(base: CodeFile | None, mark: Mark, times: int = 1) -> bool:
    """Whether so much changed after a code file was made, or without one, that it should be rebuilt; or `times` as
    much."""
    known, items = (base.mark, len(base.codes)) if base else (Mark(0, 0), 0)
    return max(mark.row - known.row, mark.removal - known.removal) > times * max(MAX_FRESH, items // SHARE)


def rebuild_damaged(store: Store, damage: DamagedCodeFile, threads: int) -> None:
    """Rebuild the code file, unless the store names another by now: then the damaged one is not in use any more."""

    def is_still_current() -> bool:
        current = current_path(store) == damage.path
        if current:
            logger.warning("%s: rebuilding it from %s", damage, store.path.name)
        return current

    if current_path(store) == damage.path:
        compact(store, threads, is_still_current)


def compact(store: Store, threads: int, is_needed: Callable[[], bool] = lambda: True) -> None:
    """Rebuild the code file from the store, and clear the log of removals up to there. `is_needed` is called with the
    writer's lock held: another thread or process may have done the same while this one waited for the lock."""
    path = None
    try:
        with store.writing() as connection:
            if not is_needed():
                return
            mark = store.mark()
            # Listed with the lock held: a file that another process makes later must not be deleted here.
            old = _all_files(store)
            rows, codes, rest_codes = sorted_codes(store)
            has_tables = store.form != "scan" and mih.worth_tables(store.bits, len(rows)) and scan.has_numba()
            cuts = mih.substring_cuts(store.bits, len(rows)) if has_tables else np.empty((0, 3), np.int64)
            stamp, fast = uuid.uuid4().hex[:STAMP], store.form == "fast"
            path = _path(store, stamp)
            bits = (store.bits, store.code_bits - store.bits)
            digest = write_code_file(path, mark, bits, codes, rest_codes, rows, cuts, fast, threads)
            store.set_code_file(connection, stamp, digest, mark.removal)
    except BaseException:
        if path is not None:
            _delete(path)  # the store does not name it
        raise
    for file in old:
        _delete(file)


def _delete(file: Path) -> None:
    """A file that cannot be deleted now is by the next compaction."""
    with suppress(OSError):
        file.unlink()


def _path(store: Store, stamp: str) -> Path:
    return store.path.with_name(f"{store.path.name}.{stamp}{store.code_suffix}")


def _all_files(store: Store) -> list[Path]:
    """All code files of this index, not of one whose name begins alike: the current one, and what killed processes have
    left behind."""
    stamp = "[0-9a-f]" * STAMP
    return list(store.path.parent.glob(f"{glob.escape(store.path.name)}.{stamp}{store.code_suffix}*"))
