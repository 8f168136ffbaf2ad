"""Rivals of codes: each takes the bytes that it says, and decodes to vectors that are nearer with more of them."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kenthash.codes import unpack
from kenthash.studies.quantisers import QUANTISERS, Vectors


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    rng = np.random.default_rng(0)
    spread = np.linspace(3, 0.3, 32)
    rows = (rng.standard_normal((700, 32)) * spread @ rng.standard_normal((32, 32))).astype(np.float32)
    return Vectors(rows[:600], rows[600:620], rows[600:], seed=0)


@pytest.mark.parametrize("name", QUANTISERS)
def test_a_query_finds_itself_sooner_with_more_bytes(vectors: Vectors, name: str) -> None:
    ranks = []
    for size in (4, 16):
        compressed = QUANTISERS[name](vectors, size)
        if compressed is None:  # too few bytes for it
            ranks.append(50.0)
            continue
        query, database = compressed
        assert len(query) == 20 and len(database) == 100
        rows: list[NDArray[Any]] = [query, database]
        signs = [unpack(m) if m.dtype == np.uint8 else m for m in rows]
        unit = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in signs]
        cosines = unit[0] @ unit[1].T
        ranks.append(float(np.mean((cosines > np.diagonal(cosines)[:, None] + 1e-6).sum(axis=1))))
    assert ranks[1] < min(ranks[0] + 0.1, 10), ranks


def test_sizes(vectors: Vectors) -> None:
    """Bytes of the database's codes, and the smallest sizes."""
    for name in ("sign", "ITQ", "LSH"):
        compressed = QUANTISERS[name](vectors, 4)
        assert compressed is not None and compressed[1].nbytes == 100 * 4
    assert QUANTISERS["RaBitQ"](vectors, 8) is None and QUANTISERS["float32"](vectors, 2) is None
    assert QUANTISERS["sign + int8"](vectors, 8) is None


def test_a_rotation_that_is_learned_loses_less(vectors: Vectors) -> None:
    """The queries are the first items, as they were before they were compressed."""
    losses = {}
    for name in ("PQ", "OPQ"):
        compressed = QUANTISERS[name](vectors, 4)
        assert compressed is not None
        losses[name] = float(np.square(compressed[0] - compressed[1][:20]).sum())
    assert losses["OPQ"] < 0.95 * losses["PQ"]
