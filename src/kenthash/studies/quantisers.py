"""What a searcher would take instead of learned codes at the same number of bytes per item: quantised float vectors.

Each quantiser is fitted on the vectors of training items, pictures and texts alike, and compresses those of the
database; queries stay as they are unless it says so. It takes a number of bytes and gives (queries, database), as codes
or as real vectors to be compared by cosine: decoding the database and comparing it with a real-valued query is what
asymmetric distances by tables compute, written plainly. None where a size is too small for it.

    float32         the first B/4 principal components
    int8            the first B principal components, each in 256 steps of its range
    pq              product quantisation in B slices (Jégou et al., TPAMI 2011) of the vectors' own components: of
                    principal ones, in their order, the last slices would have nothing to tell
    opq             the same after a rotation (Ge et al., CVPR 2013) of the principal components
    rabitq          one bit for each of 8 (B − 8) components and two float factors per vector (Gao & Long, SIGMOD 2024)
    sign            the signs of the first 8B principal components, of queries as well
    sign, real      the same, with real-valued queries
    itq, itq, real  the same after the rotation that loses least in signing (Gong & Lazebnik, CVPR 2011)
    lsh             the signs of 8B random projections (Charikar, STOC 2002), of queries as well
    sign + int8     signs to find candidates and int8 to rescore them, both counted, as sentence-transformers does it
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, pack
from kenthash.methods.closed_form import itq as itq_rotation
from kenthash.studies.controls import load_faiss

Matrix = NDArray[np.float32]
Ranked = tuple[Codes | Matrix, Codes | Matrix]  # queries, database
Quantiser = Callable[["Vectors", int], Ranked | None]

RABITQ_FACTORS = 8  # bytes per vector
OPQ_ROUNDS = 50  # turns of the rotation, as many as faiss's default
LONG, LONG_ROUNDS = 64, 20  # bytes from which so many do: a turn takes seconds, and R@10 at 64 bytes is that after 50
FAST = 8  # dimensions: faiss clusters slices of fewer ten times slower


class Vectors:
    """Float vectors that a quantiser works on: some to fit on, queries, and a database. All are turned to the principal
    components of the first, the largest first, which leaves cosines as they are.
    """

    def __init__(self, fit: Matrix, query: Matrix, database: Matrix, seed: int) -> None:
        values, axes = np.linalg.eigh(fit.T @ fit)
        self.turn = np.asarray(axes[:, np.argsort(-values)], np.float32)
        self.fit, self.query, self.database = (np.asarray(m @ self.turn, np.float32) for m in (fit, query, database))
        self.seed = seed

    @property
    def dim(self) -> int:
        return int(self.fit.shape[1])

    def first(self, components: int) -> tuple[Matrix, Matrix, Matrix]:
        return self.fit[:, :components], self.query[:, :components], self.database[:, :components]


def float32(vectors: Vectors, size: int) -> Ranked | None:
    if size < 4:
        return None
    _, query, database = vectors.first(size // 4)
    return query, database


def int8(vectors: Vectors, size: int) -> Ranked | None:
    fit, query, database = vectors.first(size)
    return query, _int8(fit, database)


def _int8(fit: Matrix, database: Matrix) -> Matrix:
    low, high = fit.min(axis=0), fit.max(axis=0)
    step = np.where(high > low, (high - low) / 255, 1)
    return np.asarray(np.clip(np.round((database - low) / step), 0, 255) * step + low, np.float32)


def pq(vectors: Vectors, size: int) -> Ranked | None:
    width = -(-vectors.dim // size) * size  # padded with zeros to whole slices
    fit, query, database = (_padded(m @ vectors.turn.T, width) for m in vectors.first(vectors.dim))
    return query, _product_quantised(fit, database, size, vectors.seed)


def opq(vectors: Vectors, size: int) -> Ranked | None:
    """Of the first components, eight per byte at most: more make the rotation slow to find, and no better.

    As in the paper, centroids move by one step of k-means for each turn of the rotation, and go on from where they are.
    """
    width = min(FAST, _power_of_two(-(-vectors.dim // size))) * size  # zeros beyond the components
    fit, query, database = (np.ascontiguousarray(_padded(m[:, :width], width)) for m in vectors.first(vectors.dim))
    faiss = load_faiss("the study of bytes")
    rotation = faiss.OPQMatrix(width, size)
    rotation.niter = OPQ_ROUNDS if size < LONG else LONG_ROUNDS
    rotation.niter_pq_0, rotation.niter_pq = 10, 1
    quantiser = rotation.pq = faiss.ProductQuantizer(width, size, _centroid_bits(fit))
    rotation.train(fit)
    fit, query, database = (np.asarray(rotation.apply(m)) for m in (fit, query, database))
    quantiser.train_type, quantiser.cp.niter = faiss.ProductQuantizer.Train_hot_start, 10
    quantiser.train(fit)
    return query, np.asarray(quantiser.decode(quantiser.compute_codes(database)), np.float32)


def _power_of_two(number: int) -> int:
    """The least that is not smaller."""
    return 1 << (number - 1).bit_length()


def _product_quantised(fit: Matrix, database: Matrix, slices: int, seed: int) -> Matrix:
    """The database, each slice as the nearest of 256 centroids; fewer vectors to fit on give fewer."""
    dims = fit.shape[1] // slices

    def widened(vectors: Matrix) -> Matrix:
        """Zeros after each slice, which change no distance."""
        parts = vectors.reshape(len(vectors), slices, dims)
        return np.pad(parts, ((0, 0), (0, 0), (0, max(FAST - dims, 0)))).reshape(len(vectors), -1)

    fit = widened(fit)
    quantiser = load_faiss("the study of bytes").ProductQuantizer(fit.shape[1], slices, _centroid_bits(fit))
    quantiser.cp.seed = seed + 1
    quantiser.cp.min_points_per_centroid = 1  # as in the control
    quantiser.train(fit)
    decoded = quantiser.decode(quantiser.compute_codes(widened(database))).reshape(len(database), slices, -1)
    return np.ascontiguousarray(decoded[:, :, :dims].reshape(len(database), -1), np.float32)


def _centroid_bits(fit: Matrix) -> int:
    return min(8, len(fit).bit_length() - 1)


def _padded(vectors: Matrix, width: int) -> Matrix:
    return np.pad(vectors, ((0, 0), (0, width - vectors.shape[1])))


def rabitq(vectors: Vectors, size: int) -> Ranked | None:
    """After a random rotation, which its bound assumes, and which spreads the components evenly over the bits."""
    if size <= RABITQ_FACTORS:
        return None
    faiss = load_faiss("the study of bytes")
    fit, query, database = vectors.first(8 * (size - RABITQ_FACTORS))
    rotation = faiss.RandomRotationMatrix(fit.shape[1], fit.shape[1])
    rotation.init(vectors.seed)
    fit, query, database = (np.asarray(rotation.apply(np.ascontiguousarray(m))) for m in (fit, query, database))
    index = faiss.IndexRaBitQ(fit.shape[1], faiss.METRIC_INNER_PRODUCT)
    index.train(fit)
    return _by_inner_product(query, np.asarray(index.sa_decode(index.sa_encode(database)), np.float32))


def _by_inner_product(query: Matrix, database: Matrix) -> Ranked:
    """With a further dimension that makes all vectors of the database equally long, so that cosines rank like inner
    products. The factors of RaBitQ are in the lengths."""
    squares = np.square(database).sum(axis=1)
    padding = np.sqrt(squares.max(initial=0) - squares)
    return np.pad(query, ((0, 0), (0, 1))), np.hstack([database, padding[:, None]])


def sign(vectors: Vectors, size: int) -> Ranked | None:
    _, query, database = vectors.first(8 * size)
    return _signed(query), _signed(database)


def sign_real(vectors: Vectors, size: int) -> Ranked | None:
    _, query, database = vectors.first(8 * size)
    return _whole_bytes(query), _signed(database)


def itq(vectors: Vectors, size: int) -> Ranked | None:
    query, database = _itq(vectors, size)
    return _signed(query), _signed(database)


def itq_real(vectors: Vectors, size: int) -> Ranked | None:
    query, database = _itq(vectors, size)
    return query, _signed(database)


def _itq(vectors: Vectors, size: int) -> tuple[Matrix, Matrix]:
    fit, query, database = vectors.first(8 * size)
    rotation = itq_rotation(fit, fit.shape[1], vectors.seed)
    return _whole_bytes(query @ rotation), _whole_bytes(database @ rotation)


def lsh(vectors: Vectors, size: int) -> Ranked | None:
    planes = np.random.default_rng(vectors.seed).standard_normal((vectors.dim, 8 * size)).astype(np.float32)
    return _signed(vectors.query @ planes), _signed(vectors.database @ planes)


def _whole_bytes(vectors: Matrix) -> Matrix:
    """With zeros up to whole bytes, which weigh nothing in a query and which all items share."""
    return _padded(vectors, -(-vectors.shape[1] // 8) * 8)


def _signed(vectors: Matrix) -> Codes:
    return pack(_whole_bytes(vectors))


def sign_int8(vectors: Vectors, size: int) -> Ranked | None:
    """D components in D/8 + D bytes. All items are ranked by int8, as if every one of them were a candidate: what
    rescoring reaches at best."""
    components = 8 * (size // 9)
    if not components:
        return None
    fit, query, database = vectors.first(components)
    return query, _int8(fit, database)


QUANTISERS: dict[str, Quantiser] = {
    "float32": float32,
    "int8": int8,
    "sign + int8": sign_int8,
    "PQ": pq,
    "OPQ": opq,
    "RaBitQ": rabitq,
    "sign": sign,
    "sign, real query": sign_real,
    "ITQ": itq,
    "ITQ, real query": itq_real,
    "LSH": lsh,
}
