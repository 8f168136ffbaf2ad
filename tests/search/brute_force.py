"""What every engine must answer: by looking at each item in a dict, and the items to look at."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kenthash.search.index import Index

Metadata = dict[str, Any]


@dataclass
class Reference:
    """The same items in a dict, searched by looking at every one."""

    items: dict[str, tuple[bytes, Metadata]] = field(default_factory=dict)

    def put(self, ids: list[str], codes: np.ndarray, metadata: list[Metadata]) -> None:
        self.items.update({one: (code.tobytes(), entry) for one, code, entry in zip(ids, codes, metadata, strict=True)})

    def search(
        self, code: np.ndarray, k: int, radius: int | None, true_of: Callable[[Metadata], bool]
    ) -> list[tuple[int, str]]:
        query = int.from_bytes(code.tobytes(), "little")
        ranked = sorted(
            ((int.from_bytes(held, "little") ^ query).bit_count(), one)
            for one, (held, entry) in self.items.items()
            if true_of(entry)
        )
        return [(distance, one) for distance, one in ranked if radius is None or distance <= radius][:k]


def agree(index: Index, reference: Reference, queries: np.ndarray, **asked: Any) -> int:
    """Index and reference answer alike, to the last tie; how many hits that was."""
    true_of = asked.pop("true_of", lambda entry: True)
    found = index.search(queries, **asked)
    assert len(found) == len(queries)
    for code, hits in zip(queries, found, strict=True):
        expected = reference.search(code, asked["k"], asked.get("radius"), true_of)
        assert list(zip(hits.distances.tolist(), hits.ids, strict=True)) == expected
        assert hits.metadata == [reference.items[one][1] for one in hits.ids]
    return sum(map(len, found))


def clustered(rng: np.random.Generator, n: int, bits: int) -> np.ndarray:
    """Few centres, few flipped bits, and a third of all items, the first among them, with one code: ties everywhere."""
    centres = rng.integers(0, 256, (8, bits // 8), dtype=np.uint8)
    flips = np.packbits(rng.random((n, bits)) < 0.04, axis=1)
    codes = centres[rng.integers(0, 8, n)] ^ flips
    same = rng.random(n) < 0.33
    same[0] = True
    codes[same] = centres[0]
    return codes


def names(rng: np.random.Generator, n: int) -> list[str]:
    """Ids whose order is not that of their arrival, nor that of a locale."""
    return [f"{'aZé/ ß日😀'[number % 8]}{number}" for number in rng.permutation(n).tolist()]
