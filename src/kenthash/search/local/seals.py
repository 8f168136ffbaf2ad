"""Checksums of what a local index holds in SQLite, which has none of its own (its pages do not show a changed letter).

The code of an item is followed by a CRC-32 of its row, id, metadata and code, and so is the code of a text, by one of
its row, item, number and code; a block of the order of ids by one of its key and rows; the notes have one together.
Four bytes are the last of a value that is there anyway: no column, and nothing else to read. They are compared whenever
a row is read out: for an answer, for a code file, for the words, and by `verify`. A CRC-32 shows every change within
32 consecutive bits, and any other but for one in four billion.
"""

import json
from collections.abc import Mapping
from zlib import crc32

SEAL = 4  # bytes


def item_seal(row: int, id: str, metadata: str, code: bytes) -> bytes:
    return crc32(f"{row} {id}\n{metadata}".encode(), crc32(code)).to_bytes(SEAL, "little")


def text_seal(row: int, item: int, number: int, code: bytes) -> bytes:
    return crc32(f"{row} {item} {number}".encode(), crc32(code)).to_bytes(SEAL, "little")


def block_seal(first: str, rows: bytes) -> bytes:
    return crc32(first.encode(), crc32(rows)).to_bytes(SEAL, "little")


def notes_seal(notes: Mapping[str, str]) -> int:
    return crc32(json.dumps(sorted(notes.items())).encode())
