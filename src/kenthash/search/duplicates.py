"""Groups of pictures that are nearly the same: saved again, resized, cropped a little, written on.

Two pictures are taken for the same where their fingerprints (see `data.fingerprint`) differ in at most 22 of 96 bits;
groups are what such pairs connect. The limit was chosen on 400 photos of COCO train2017 with four edits of each:
JPEG of quality 60, half the size, 5 % cropped, and a line of text. `kenthash bench duplicates` measures it on others.
What two pictures show does not matter: two photos of one dog are no duplicates.

Fingerprints come with the pictures that `index add FOLDER` encodes. Every pair is compared, in blocks: a thousand
million pairs, of 45,000 pictures, take some seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kenthash.data.fingerprint import BITS
from kenthash.search.engine import Item, Metadata
from kenthash.search.index import Index

LIMIT = 22  # bits of a fingerprint that may differ
PAGE = 1000  # items read at a time
PAIRS = 1 << 22  # compared at a time

Prints = NDArray[np.uint8]  # [n, BITS / 8]


@dataclass(frozen=True)
class Duplicate:
    id: str
    metadata: Metadata


@dataclass(frozen=True)
class Duplicates:
    """Groups in the order of the ids of their first pictures; in each the picture with the most pixels is the first,
    then that with the largest file, then by id."""

    groups: list[list[Duplicate]]
    compared: int  # pictures
    without: int  # items that have no fingerprint: added as codes, from a pack, or by an older version


def find_duplicates(index: Index, limit: int = LIMIT) -> Duplicates:
    items: list[Duplicate] = []
    prints: list[bytes] = []
    without = 0
    for item in _items(index):
        code = fingerprint_of(item.metadata)
        if code is None:
            without += 1
        else:
            items.append(Duplicate(item.id, item.metadata))
            prints.append(code)
    codes = np.frombuffer(b"".join(prints), np.uint8).reshape(len(prints), BITS // 8)
    groups = [[items[place] for place in group] for group in near_groups(codes, limit)]
    for group in groups:
        group.sort(key=_best_first)
    return Duplicates(sorted(groups, key=lambda group: group[0].id), len(items), without)


def near_groups(prints: Prints, limit: int = LIMIT) -> list[list[int]]:
    """The groups of two or more that are connected by pairs within `limit` bits.

    Example (limit 1: the first and third are connected by the second):

        >>> near_groups(np.uint8([[0b0000] * 12, [0b0001] + [0] * 11, [0b0011] + [0] * 11, [255] * 12]), 1)
        [[0, 1, 2]]
    """
    parents = list(range(len(prints)))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    for first, second in near_pairs(prints, limit):
        a, b = root(first), root(second)
        parents[max(a, b)] = min(a, b)
    members: dict[int, list[int]] = {}
    for place in range(len(prints)):
        members.setdefault(root(place), []).append(place)
    return [group for group in members.values() if len(group) > 1]


def near_pairs(prints: Prints, limit: int) -> Iterator[tuple[int, int]]:
    """Pairs i < j within `limit` bits. The first 64 bits alone rule out most others."""
    padded = np.zeros((len(prints), 16), np.uint8)
    padded[:, : prints.shape[1]] = prints
    words = padded.view("<u8")
    first, second_words = np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
    start = 0
    while start < len(prints):
        end = min(len(prints), start + max(1, PAIRS // (len(prints) - start)))
        apart = np.bitwise_count(first[start:end, None] ^ first[None, start:])
        rows, columns = np.nonzero(apart <= limit)
        later = columns > rows
        rows, columns = rows[later], columns[later]
        total = apart[rows, columns] + np.bitwise_count(second_words[start + rows] ^ second_words[start + columns])
        near = total <= limit
        yield from zip((start + rows[near]).tolist(), (start + columns[near]).tolist(), strict=True)
        start = end


def fingerprint_of(metadata: Metadata) -> bytes | None:
    value = metadata.get("fingerprint")
    try:
        code = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:  # a key of this name that is not ours
        return None
    return code if len(code) == BITS // 8 else None


def _items(index: Index) -> Iterator[Item]:
    after = ""
    while names := index.list_ids(after, PAGE):
        after = names[-1]
        yield from (item for item in index.get(names) if item is not None)


def _best_first(item: Duplicate) -> tuple[float, float, str]:
    return -_number(item, "width") * _number(item, "height"), -_number(item, "size"), item.id


def _number(item: Duplicate, key: str) -> float:
    value = item.metadata.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
