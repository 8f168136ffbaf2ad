"""Controls that rank by real values, on the same vectors, fitted on the training items without labels.

    cosine    float cosine of the vectors themselves, the image tower mapped onto the text tower by ridge regression
    pq        product quantisation to the same number of bytes, asymmetric distance (Jégou et al., TPAMI 2011)
    rabitq    RaBitQ: one bit per dimension and 8 bytes of factors per item, asymmetric inner product, of the vectors
              reduced to as many dimensions as the code has bits (Gao & Long, SIGMOD 2024)

None of them has codes to compare by Hamming distance: an item of `pq` is a list of centroids, and of two items of
`rabitq` with the same bits one is nearer by its factors. So they are controls of tables, which call their figures real,
and no models to index by. Controls with codes are methods (`methods/closed_form.py`).
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.data.pack import FeaturePack
from kenthash.errors import KenthashError
from kenthash.methods.closed_form import Matrix, aligned

CONTROLS_FILE = "controls.json"  # what a comparison keeps of them
NEED_FAISS = ("pq", "rabitq")
LONGEST = 4.0  # more than the length that RaBitQ gives a decoded vector of unit length


@dataclass(frozen=True)
class Side:
    """Image and text vectors of some items, first captions."""

    image: Matrix
    text: Matrix


@dataclass(frozen=True)
class Ranked:
    """What is compared, by cosine: the vectors of some items as they ask, and as they are found."""

    queries: Side
    items: Side


Apply = Callable[[Side], Ranked]
Control = Callable[[Side, int, int], Apply]  # fitted on a side, for so many bits, with a seed


def side_of(features: FeaturePack, rows: NDArray[np.int64]) -> Side:
    texts = features.text_offsets[rows]
    return Side(np.asarray(features.image[rows], np.float32), np.asarray(features.text[texts], np.float32))


def cosine(fit: Side, bits: int, seed: int) -> Apply:
    into_one_space = in_one_space(fit)

    def apply(side: Side) -> Ranked:
        vectors = into_one_space(side)
        return Ranked(vectors, vectors)

    return apply


def pq(fit: Side, bits: int, seed: int) -> Apply:
    """Items as one of 256 centroids in each of bits/8 slices, queries as they are. Fewer training vectors than that
    give fewer centroids, a power of two.

    Items are decoded before they are compared: that is the asymmetric distance, written plainly.
    """
    into_one_space, both = _both(fit)
    slices = bits // 8
    width = -(-both.shape[1] // slices) * slices  # padded with zeros to whole slices

    def padded(vectors: Matrix) -> Matrix:
        return np.pad(vectors, ((0, 0), (0, width - vectors.shape[1])))

    quantiser = load_faiss("the control pq").ProductQuantizer(width, slices, min(8, len(both).bit_length() - 1))
    quantiser.cp.seed = seed + 1
    quantiser.cp.min_points_per_centroid = 1  # else it warns once per slice of small data
    quantiser.train(padded(both))

    def decoded(vectors: Matrix) -> Matrix:
        return np.asarray(quantiser.decode(quantiser.compute_codes(padded(vectors))), np.float32)

    return _with_items(into_one_space, padded, decoded)


def rabitq(fit: Side, bits: int, seed: int) -> Apply:
    """The principal directions of the training vectors, turned at random, which the estimate of RaBitQ relies on.

    Of a query q and an item o it estimates ⟨q, o⟩ ≈ ⟨q − c, ô − c⟩ + ⟨q, c⟩ + ⟨o, c⟩ − ⟨c, c⟩, ô the decoded item and c
    the centre. For one query that is the inner product of (q, 1) with (ô − c, ⟨o, c⟩ − ⟨ô − c, c⟩) and a constant; a
    further dimension makes all items equally long, so that cosines rank like inner products.
    """
    into_one_space, both = _both(fit)
    dims = min(bits, both.shape[1])
    axes = np.linalg.eigh(both.T @ both)[1][:, ::-1][:, :dims]
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((dims, dims)))[0]
    weight = np.asarray(axes @ turn, np.float32)
    faiss = load_faiss("the control rabitq")
    quantiser = faiss.IndexRaBitQ(dims, faiss.METRIC_INNER_PRODUCT)
    quantiser.train(both @ weight)
    centre = faiss.vector_to_array(quantiser.center)

    def as_query(vectors: Matrix) -> Matrix:
        return np.hstack([vectors @ weight, np.tile(np.array([[1, 0]], np.float32), (len(vectors), 1))])

    def decoded(vectors: Matrix) -> Matrix:
        rotated = vectors @ weight
        from_centre = quantiser.sa_decode(quantiser.sa_encode(rotated)) - centre
        items = np.hstack([from_centre, ((rotated - from_centre) @ centre)[:, None]])
        remaining_squares = np.maximum(LONGEST**2 - np.square(items).sum(axis=1), 0)
        return np.hstack([items, np.sqrt(remaining_squares)[:, None]]).astype(np.float32)

    return _with_items(into_one_space, as_query, decoded)


def in_one_space(fit: Side) -> Callable[[Side], Side]:
    of_image, of_text = aligned(fit.image, fit.text)
    return lambda side: Side(_unit(of_image(side.image)), _unit(of_text(side.text)))


def _both(fit: Side) -> tuple[Callable[[Side], Side], Matrix]:
    """The map into one space, and the training vectors of both towers in it."""
    into_one_space = in_one_space(fit)
    learned = into_one_space(fit)
    return into_one_space, np.concatenate([learned.image, learned.text])


def _with_items(
    into_one_space: Callable[[Side], Side], as_query: Callable[[Matrix], Matrix], as_item: Callable[[Matrix], Matrix]
) -> Apply:
    def apply(side: Side) -> Ranked:
        vectors = into_one_space(side)
        queries, items = ((how(vectors.image), how(vectors.text)) for how in (as_query, as_item))
        return Ranked(Side(*queries), Side(*items))

    return apply


def _unit(vectors: Matrix) -> Matrix:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def load_faiss(what: str) -> Any:
    try:
        import faiss
    except ImportError as error:
        raise KenthashError(f"{what} needs faiss: pip install 'kenthash[study]', or leave it out") from error
    return faiss


def has_faiss() -> bool:
    return importlib.util.find_spec("faiss") is not None


CONTROLS: dict[str, Control] = {"cosine": cosine, "pq": pq, "rabitq": rabitq}
REFERENCES = {"cosine": "float, no code", "pq": "real, same bytes", "rabitq": "real, 8 bytes more"}
