"""An item as a row of Milvus, and what of it may stand in an expression.

An expression is text, so nothing of the user's enters it as such: text becomes harmless ASCII and \\u escapes; metadata
keys are kept, and asked for, in a form of letters, digits and underscores.
"""

import json
import string
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import DataError
from kenthash.search.engine import Item, Metadata

FIELD = "metadata"
PLAIN = frozenset(string.ascii_letters + string.digits + "/._-")
MAX_JSON = 65_536  # bytes of an item's JSON in Milvus
REQUEST_BYTES = 1 << 24  # of one insert; Milvus takes 64 MB


def stored(metadata: Metadata) -> dict[str, Any]:
    """Metadata as kept: values below "m"; the keys of nulls and of empty lists apart, below "n" and "e".

    Milvus versions differ on whether a key that holds null or [] exists; so no such key stands below "m".
    """
    kept: dict[str, Any] = {"m": {safe_key(key): value for key, value in metadata.items() if value not in (None, [])}}
    for name, empty in ("n", None), ("e", []):
        keys = [safe_key(key) for key, value in metadata.items() if value == empty]
        if keys:
            kept[name] = keys
    return kept


def restored(kept: dict[str, Any]) -> Metadata:
    metadata: Metadata = {plain_key(key): value for key, value in kept["m"].items()}
    metadata.update({plain_key(key): None for key in kept.get("n", ())})
    metadata.update({plain_key(key): [] for key in kept.get("e", ())})
    return metadata


def safe_key(key: str) -> str:
    """ASCII letters and digits stand for themselves, every other byte of the UTF-8 form is _ and two hex digits."""
    return "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"_{byte:02x}" for byte in key.encode())


def plain_key(key: str) -> str:
    first, *rest = key.split("_")
    return (first.encode() + b"".join(bytes.fromhex(part[:2]) + part[2:].encode() for part in rest)).decode()


def quoted(text: str) -> str:
    """A string literal of Milvus, in which only what PLAIN lists stands for itself."""
    return '"' + "".join(c if c in PLAIN else _escaped(ord(c)) for c in text) + '"'


def _escaped(point: int) -> str:
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def requests(
    where: str, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]
) -> Iterator[list[dict[str, Any]]]:
    """Rows in requests of some REQUEST_BYTES; what Milvus would refuse is refused before the first is sent."""
    kept = [stored(entry) for entry in metadata]
    sizes = [len(json.dumps(entry, ensure_ascii=False).encode()) for entry in kept]
    for one, size in zip(ids, sizes, strict=True):
        if size > MAX_JSON:
            raise DataError(f"{where}: metadata of {one!r} take {size:,} bytes: Milvus keeps {MAX_JSON:,}")
    rows: list[dict[str, Any]] = []
    room = REQUEST_BYTES
    for one, code, entry, size in zip(ids, codes, kept, sizes, strict=True):
        rows.append({"id": one, "code": code.tobytes(), FIELD: entry})
        room -= size + 4 * len(one) + len(code)
        if room < 0:
            yield rows
            rows, room = [], REQUEST_BYTES
    if rows:
        yield rows


def item(row: dict[str, Any]) -> Item:
    (code,) = row["code"]
    return Item(row["id"], np.frombuffer(code, np.uint8), restored(row[FIELD]))
