"""The right answers, by comparing with every item of a dict; and items to search."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, unpack
from kenthash.search.index import Index

Metadata = dict[str, Any]


@dataclass
class Reference:
    """The same items in a dict, searched by comparing with every one of them."""

    items: dict[str, tuple[bytes, Metadata]] = field(default_factory=dict)

    def put(self, ids: list[str], codes: Codes, metadata: list[Metadata]) -> None:
        rows = zip(ids, codes, metadata, strict=True)
        self.items.update({item_id: (code.tobytes(), entry) for item_id, code, entry in rows})

    def search(
        self, query: NDArray[Any], k: int, radius: int | None, true_of: Callable[[Metadata], bool]
    ) -> list[tuple[int, str]]:
        """By a packed code, or by real values, of which the sizes in 1/255 of the largest weigh the bits."""
        weights = [1] * (8 * len(query))
        signs = np.unpackbits(query, bitorder="little") if query.dtype == np.uint8 else (query >= 0).astype(np.uint8)
        if query.dtype != np.uint8:
            weights = [round(255 * size / max(abs(query).tolist())) for size in abs(query).tolist()]
        ranked = []
        for item_id, (code, entry) in self.items.items():
            bits = np.unpackbits(np.frombuffer(code, np.uint8), bitorder="little")
            differs = np.flatnonzero(bits != signs).tolist()
            if true_of(entry) and (radius is None or len(differs) <= radius):
                ranked.append((sum(weights[i] for i in differs), item_id))
        return sorted(ranked)[:k]


def agree(index: Index, reference: Reference, queries: NDArray[Any], **options: Any) -> int:
    """Index and reference answer alike, to the last tie. Returns the number of hits."""
    true_of, proven = options.pop("true_of", lambda entry: True), options.pop("proven", True)
    answers = index.search(queries, **options)
    assert len(answers) == len(queries)
    for code, hits in zip(queries, answers, strict=True):
        expected = reference.search(code, options["k"], options.get("radius"), true_of)
        assert list(zip(hits.distances.tolist(), hits.ids, strict=True)) == expected
        assert hits.proven == proven
        assert hits.metadata == [reference.items[item_id][1] for item_id in hits.ids]
    return sum(map(len, answers))


def clustered(rng: np.random.Generator, n: int, bits: int) -> Codes:
    """Few centres, few flipped bits, and a third of all items, the first among them, with one code: ties everywhere."""
    centres = rng.integers(0, 256, (8, bits // 8), dtype=np.uint8)
    flips = np.packbits(rng.random((n, bits)) < 0.04, axis=1)
    codes = centres[rng.integers(0, 8, n)] ^ flips
    same = rng.random(n) < 0.33
    same[0] = True
    codes[same] = centres[0]
    return codes


def outputs_near(rng: np.random.Generator, codes: Codes) -> NDArray[np.float32]:
    """Real-valued queries with the signs of codes, and of sizes as a model gives them; some of them tie."""
    sizes = np.round(np.abs(np.tanh(rng.normal(size=(len(codes), 8 * codes.shape[1])))), 1)
    return np.asarray(sizes * unpack(codes), np.float32)


def names(rng: np.random.Generator, n: int) -> list[str]:
    """Ids whose order is not that of their arrival, nor that of a locale."""
    return [f"{'aZé/ ß日😀'[number % 8]}{number}" for number in rng.permutation(n).tolist()]
