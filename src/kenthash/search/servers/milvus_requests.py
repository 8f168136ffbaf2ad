"""What is sent to Milvus and what comes back: items as rows, filters as expressions, answers in exact order.

An expression is text, so no input becomes part of it unchanged: strings become plain ASCII with \\u escapes; metadata
keys are kept, and queried, in a form of letters, digits and underscores.
"""

import json
import string
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import DataError
from kenthash.search.engine import Item, Metadata
from kenthash.search.filters import Among, And, Compare, Filter, Has, IsNull, Literal, NearPlace, Not, Or

FIELD = "metadata"
PLAIN = frozenset(string.ascii_letters + string.digits + "/._-")
MAX_JSON = 65_536  # bytes of an item's JSON that Milvus accepts
REQUEST_BYTES = 1 << 24  # of one insert; Milvus accepts 64 MB

Near = list[tuple[int, str]]  # (distance, id)


def encode_metadata(metadata: Metadata) -> dict[str, Any]:
    """Metadata as kept in Milvus: values below "m"; the keys of nulls and of empty lists below "n" and "e".

    Milvus versions differ on whether a key that holds null or [] exists, so no such key is below "m".
    """
    document: dict[str, Any] = {
        "m": {safe_key(key): value for key, value in metadata.items() if value not in (None, [])}
    }
    for name, empty in ("n", None), ("e", []):
        keys = [safe_key(key) for key, value in metadata.items() if value == empty]
        if keys:
            document[name] = keys
    return document


def decode_metadata(document: dict[str, Any]) -> Metadata:
    metadata: Metadata = {plain_key(key): value for key, value in document["m"].items()}
    metadata.update({plain_key(key): None for key in document.get("n", ())})
    metadata.update({plain_key(key): [] for key in document.get("e", ())})
    return metadata


def safe_key(key: str) -> str:
    """ASCII letters and digits stay, every other byte of the UTF-8 form becomes _ and two hex digits."""
    return "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"_{byte:02x}" for byte in key.encode())


def plain_key(key: str) -> str:
    """The inverse of `safe_key`."""
    first, *escaped_parts = key.split("_")
    return (first.encode() + b"".join(bytes.fromhex(part[:2]) + part[2:].encode() for part in escaped_parts)).decode()


def quoted(text: str) -> str:
    """A string literal of Milvus, in which all characters but those of PLAIN are escaped."""
    return '"' + "".join(c if c in PLAIN else _escaped(ord(c)) for c in text) + '"'


def _escaped(point: int) -> str:
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def insert_requests(
    where: str, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]
) -> Iterator[list[dict[str, Any]]]:
    """Rows in requests of about REQUEST_BYTES; what Milvus would refuse is refused before the first is sent."""
    encoded = [encode_metadata(entry) for entry in metadata]
    sizes = [len(json.dumps(entry, ensure_ascii=False).encode()) for entry in encoded]
    for item_id, size in zip(ids, sizes, strict=True):
        check_size(where, item_id, size)
    rows: list[dict[str, Any]] = []
    bytes_left = REQUEST_BYTES
    for item_id, code, entry, size in zip(ids, codes, encoded, sizes, strict=True):
        rows.append({"id": item_id, "code": code.tobytes(), FIELD: entry})
        bytes_left -= size + 4 * len(item_id) + len(code)
        if bytes_left < 0:
            yield rows
            rows, bytes_left = [], REQUEST_BYTES
    if rows:
        yield rows


def check_size(where: str, item_id: str, size: int) -> None:
    if size > MAX_JSON:
        raise DataError(f"{where}: metadata of {item_id!r} take {size:,} bytes: Milvus keeps {MAX_JSON:,}")


def to_item(row: dict[str, Any]) -> Item:
    (code,) = row["code"]
    return Item(row["id"], np.frombuffer(code, np.uint8), decode_metadata(row[FIELD]))


def filter_expression(term: Filter, listed: Callable[[Filter, str], str]) -> str:
    """A filter as Milvus's boolean expression.

    Milvus compares JSON values within their kind; of a missing key all comparisons are false but `!=`, which therefore
    is not used. It neither computes sines nor looks for a text inside another: items of which such a term is true are
    listed by `listed`, which is given the term and an expression that is true of all these and of few others.
    """
    match term:
        case Compare(key, "!=", bool(value)):
            return filter_expression(Compare(key, "=", not value), listed)
        case Compare(key, "!=", value):
            return filter_expression(Or((Compare(key, "<", value), Compare(key, ">", value))), listed)
        case Compare(key, op, value):
            return f"{_field(key)} {'==' if op == '=' else op} {_literal(value)}"
        case Among(key, values):
            return filter_expression(Or(tuple(Compare(key, "=", value) for value in values)), listed)
        case Has(key, value):
            contains = listed(term, f'{_field(key)} like "%"')  # true of texts alone
            return f"(json_contains({_field(key)}, {quoted(value)}) or {contains})"
        case NearPlace():
            return listed(term, filter_expression(term.box(), listed))
        case IsNull(key):
            return f'not ((exists {_field(key)}) or json_contains({FIELD}["e"], "{safe_key(key)}"))'
        case Not(inner):
            return f"not ({filter_expression(inner, listed)})"
        case And(terms):
            return _joined("and", [filter_expression(part, listed) for part in terms])
        case Or(terms):
            return _joined("or", [filter_expression(part, listed) for part in terms])


def _joined(word: str, terms: list[str]) -> str:
    """A balanced tree: a chain of 256 would nest deeper than Milvus's messages may."""
    if len(terms) == 1:
        return f"({terms[0]})"
    half = len(terms) // 2
    return f"({_joined(word, terms[:half])} {word} {_joined(word, terms[half:])})"


def _field(key: str) -> str:
    return f'{FIELD}["m"]["{safe_key(key)}"]'


def _literal(value: Literal) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    # A whole number is compared as an integer, exactly; the smallest one of 64 bits has no literal in Milvus.
    if value == int(value) and abs(value) < 2**63:
        return str(int(value))
    return repr(float(value))


def resolve_ties(top: Near, k: int, width: int, search_below: Callable[[str], Near]) -> Near:
    """The first k items by (distance, id), given the nearest `width` > k.

    Milvus gives the nearest items but, of those that tie at the last distance, any; with short codes many do.
    Let d be the k-th distance. All items nearer than d are in `top`. If `top` goes beyond d, so are all ties at d.
    Otherwise the ids of the ties that belong to the answer are at most the largest id in the answer so far:
    `search_below` gives the nearest `width` of the items whose id is less than a given one. Its result holds more ties
    than are needed (width > k), so every round ends at a smaller id, until a round has seen all.
    """
    top = sorted(top)
    if len(top) < width or top[-1][0] > top[k - 1][0]:
        return top[:k]
    best, furthest = top[:k], top[k - 1][0]
    nearer = [hit for hit in best if hit[0] < furthest]
    while True:
        last = best[-1]
        more = search_below(last[1])
        ties = sorted(hit for hit in more if hit[0] == furthest)
        best = [*nearer, *ties, last][:k]
        # No progress means that items were added or removed meanwhile: `best` was the answer at some moment between.
        if len(more) < width or max(more)[0] > furthest or best[-1] == last:
            return best
