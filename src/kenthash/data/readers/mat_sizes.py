"""What a MATLAB file declares, checked before scipy reads it: the memory it would take, and what scipy trusts.

A few kilobytes can declare, or inflate to, any size: a cell array is its shape and then its cells, and a reader makes
room for as many as the shape says. `check_sizes` walks through the elements of a file of version 5 to 7 ("MAT-File
Level 5 File Format", The MathWorks) in the order in which scipy reads them, and counts

- each byte that is inflated,
- NODE bytes for each cell, and for each field of a structure: Python objects take some,
- 4 bytes for each character, which need not be in the file: a string without content is one of blanks,
- 16 bytes for each byte of complex numbers, which become complex128.

It ends with one line as soon as these are more than MAX_BYTES. Other numbers take what they take in the file.

scipy's reader is compiled, and does not check all that it reads. The following would end the process, or write outside
of an array, and are refused here:

- values of a type that MATLAB does not have: it looks the type up in a table, beyond its end;
- arrays without dimensions;
- sparse matrices with values outside of the matrix, or with columns that begin before the one to their left;
- compressed data with a gap, where it steps over less than it should. All that follows would be read as something else
  than what was checked.
"""

import io
import math
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import DataError

MAX_BYTES = 2 << 30  # of what a file holds: a hundred times the labels of NUS-WIDE
NODE = 1 << 10  # bytes that a cell counts for: the limit is two million of them, and COCO has 740,000
MAX_LEVELS = 32  # of cells within cells; scipy's reader ends the process after some thousands
MAX_FIELDS = 10_000  # of a structure: scipy compares the name of each with that of each, which takes 0.2 s for these
CHUNK = 1 << 16  # bytes that are read or inflated at a time; scipy reads a multiple of it

# Types of elements, and classes of arrays, as MATLAB numbers them.
MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, OBJECT, CHARACTERS, SPARSE, FUNCTION, OPAQUE = 1, 2, 3, 4, 5, 16, 17
NUMBERS = range(6, 16)
# Types of elements that hold values, and what scipy reads them as.
VALUES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
VALUES |= {16: "u1", 17: "u2", 18: "u4"}  # UTF-8, UTF-16 and UTF-32
COMPLEX = 8  # a flag


class MemoryCount:
    """Counts the memory that a file would take, and refuses what is beyond the limit."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0

    def take(self, size: int) -> None:
        self.size += size
        if self.size > MAX_BYTES:
            gigabytes, limit = self.size / (1 << 30), MAX_BYTES >> 30
            raise DataError(f"{self.path}: would take {gigabytes:,.1f} GiB of memory, the limit is {limit}")

    def check_level(self, level: int) -> None:
        if level > MAX_LEVELS:
            raise DataError(f"{self.path}: cells within cells, more than {MAX_LEVELS} levels")

    def check_fields(self, number: int) -> None:
        if number > MAX_FIELDS:
            raise DataError(f"{self.path}: a structure of {number:,} fields, the limit is {MAX_FIELDS:,}")


def check_sizes(path: Path) -> None:
    """Raise DataError where a file of version 5 to 7 would take too much memory or end the process; other versions are
    let through."""
    count = MemoryCount(path)
    with path.open("rb") as stream:
        header = stream.read(128)
        if len(header) < 128 or 0 in header[:4]:  # version 4, as scipy finds out
            return
        if header[125 if header[126] == ord("I") else 124] != 1:  # version 7.3
            return
        order = "<" if header[126:] == b"IM" else ">"
        try:
            while stream.read(1):
                stream.seek(-1, io.SEEK_CUR)
                _check_variable(stream, order, count)
        except (struct.error, zlib.error, EOFError) as error:
            raise DataError(f"{path}: not a MATLAB file that can be read: it is damaged or cut off") from error


def _check_variable(stream: BinaryIO, order: str, count: MemoryCount) -> None:
    kind, size = struct.unpack(f"{order}II", stream.read(8))
    if size == 0:
        raise EOFError
    end = stream.tell() + size
    if kind == COMPRESSED:
        inflated = cast("BinaryIO", io.BufferedReader(_Inflated(stream, size, count), CHUNK))
        _Walk(inflated, order, count).variable()
        while inflated.read(CHUNK):  # what is left over is counted, too
            pass
    else:
        stream.seek(-8, io.SEEK_CUR)
        _Walk(stream, order, count).variable()
    stream.seek(end)


class _Inflated(io.RawIOBase):
    """What a compressed element of `size` bytes inflates to."""

    def __init__(self, stream: BinaryIO, size: int, count: MemoryCount) -> None:
        self.stream, self.left, self.count = stream, size, count
        self.inflater, self.packed = zlib.decompressobj(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        room = memoryview(buffer)
        while not self.inflater.eof:
            if not self.packed:
                self.packed = self.stream.read(min(CHUNK, self.left))
                self.left -= len(self.packed)
            part = self.inflater.decompress(self.packed, len(room))
            at_end = not self.packed
            self.packed = self.inflater.unconsumed_tail
            if part:
                self.count.take(len(part))
                room[: len(part)] = part
                return len(part)
            if at_end:
                break
            if self.left and not self.inflater.eof:  # a gap: no compressor writes so many bytes for nothing
                raise EOFError
        return 0


class _Walk:
    """Steps through one variable. Like scipy it goes by the arrays' shapes, and not by the sizes of whole arrays, which
    may say something else."""

    def __init__(self, stream: BinaryIO, order: str, count: MemoryCount) -> None:
        self.stream, self.count = stream, count
        self.tag, self.flags = struct.Struct(f"{order}II"), struct.Struct(f"{order}8xII")
        self.order = order

    def variable(self) -> None:
        kind, _ = self.tag.unpack(self.stream.read(8))
        if kind != MATRIX:
            raise EOFError
        self.array(0)  # whatever its size: scipy does not look at it

    def matrix(self, level: int) -> None:
        kind, size = self.tag.unpack(self.stream.read(8))
        if kind != MATRIX:
            raise EOFError
        if size:
            self.array(level)

    def array(self, level: int) -> None:
        self.count.check_level(level)
        flags, _ = self.flags.unpack(self.stream.read(16))
        kind = flags & 0xFF
        shape: tuple[int, ...] = ()
        if kind != OPAQUE:
            content = self.content()
            shape = struct.unpack(f"{self.order}{len(content) // 4}I", content)
            if not shape:
                raise EOFError
            self.skip()  # the name
        items = math.prod(shape)
        if kind in NUMBERS:
            self.numbers(flags)
        elif kind == CHARACTERS:
            self.count.take(4 * items)
            self.skip_values(may_be_empty=True)
        elif kind == CELL:
            self.matrices(items, level)
        elif kind in (STRUCT, OBJECT):
            if kind == OBJECT:
                self.skip()  # the name of its class
            (length,) = struct.unpack(f"{self.order}i", self.content())
            fields = len(self.content()) // length if length > 0 else 0
            self.count.check_fields(fields)
            self.count.take(NODE * items)
            self.matrices(items * fields, level)
        elif kind == SPARSE:
            self.check_places(shape)
            self.numbers(flags)
        elif kind == FUNCTION:
            self.matrices(1, level)
        elif kind == OPAQUE:
            for _ in range(3):
                self.skip()  # names
            self.matrices(1, level)
        else:
            raise EOFError

    def matrices(self, number: int, level: int) -> None:
        self.count.take(NODE * number)
        for _ in range(number):
            self.matrix(level + 1)

    def numbers(self, flags: int) -> None:
        if flags >> 8 & COMPLEX:
            self.count.take(16 * self.skip_values())
        self.skip_values()

    def check_places(self, shape: tuple[int, ...]) -> None:
        """Read where the values of a sparse matrix belong: the row of each, and the number of the first value of each
        column."""
        rows, starts = self.integers(), self.integers()
        if len(shape) != 2:
            raise EOFError
        height, width = shape
        starts = starts[: width + 1]
        if not starts.size or starts[0] != 0 or (starts[1:] < starts[:-1]).any():
            raise EOFError
        rows = rows[: starts[-1]]  # others are not used
        if (rows < 0).any() or (rows >= height).any():
            raise EOFError

    def integers(self) -> NDArray[np.integer[Any]]:
        kind, content = self.element()
        dtype = np.dtype(f"{self.order}{VALUES.get(kind, 'f8')}")
        if dtype.kind == "f":
            raise EOFError
        return np.frombuffer(content, dtype, len(content) // dtype.itemsize)

    def start(self) -> tuple[int, int, bytes]:
        """The type and the size of an element, and its content where the tag has room for it."""
        tag = self.stream.read(8)
        kind, size = self.tag.unpack(tag)
        if small := kind >> 16:
            return kind & 0xFFFF, small, tag[4 : 4 + small]
        return kind, size, b""

    def content(self) -> bytes:
        return self.element()[1]

    def element(self) -> tuple[int, bytes]:
        """The type and the content of an element."""
        kind, size, content = self.start()
        if not content:
            self.count.take(size)
            content = self.stream.read(size)
            if len(content) < size:
                raise EOFError
            self.stream.read(-size % 8)
        return kind, content

    def skip_values(self, may_be_empty: bool = False) -> int:
        """An element of values, whose size is returned. Where it `may_be_empty`, its type does not matter then."""
        kind, size = self.skip()
        if kind not in VALUES and not (may_be_empty and size == 0):
            raise EOFError
        return size

    def skip(self) -> tuple[int, int]:
        """The type and the size of an element."""
        kind, size, content = self.start()
        if not content:
            left = size + -size % 8
            while left:
                part = len(self.stream.read(min(left, CHUNK)))
                if not part:
                    raise EOFError
                left -= part
        return kind, size
