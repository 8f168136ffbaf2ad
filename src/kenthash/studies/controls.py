"""What a user would take instead of a learned hash, on the same vectors, fitted on the training items without labels.

    cosine    float cosine of the vectors themselves, the image tower mapped onto the text tower by ridge regression
              where the two do not share a space
    sign      the signs of those mapped vectors, centred: as many bits as the tower has dimensions, at most 1,024
    lsh       random hyperplanes (Charikar, STOC 2002)
    cca-itq   canonical correlation analysis of the two towers, then the rotation that costs least in signing
              (Gong & Lazebnik, CVPR 2011)
    pq        product quantisation to the same number of bytes, asymmetric distance (Jégou et al., TPAMI 2011)

`lsh`, `cca-itq` and `sign` give codes; `cosine` and `pq` rank by real values, and tables say so.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import MAX_BITS, Codes, pack
from kenthash.data.pack import FeaturePack
from kenthash.data.splits import Split
from kenthash.errors import KenthashError

Matrix = NDArray[np.float32]
RIDGE = 1.0  # times the mean eigenvalue of the image tower's covariance; flat between 0.1 and 10


@dataclass(frozen=True)
class Side:
    """Image and text vectors of some items, first captions."""

    image: Matrix
    text: Matrix


@dataclass(frozen=True)
class Ranked:
    """What is compared for one part of the split: codes, or real vectors by cosine."""

    image: Codes | Matrix
    text: Codes | Matrix


Control = Callable[[Side, tuple[Side, ...], int, int], tuple[Ranked, ...]]


def side_of(features: FeaturePack, rows: NDArray[np.int64]) -> Side:
    texts = features.text_offsets[rows]
    return Side(np.asarray(features.image[rows], np.float32), np.asarray(features.text[texts], np.float32))


def apply_control(name: str, features: FeaturePack, split: Split, bits: int) -> tuple[Ranked, Ranked]:
    """(query, database) of a control fitted on the split's training items."""
    fit = side_of(features, split.train)
    parts = (side_of(features, split.query), side_of(features, split.database))
    query, database = CONTROLS[name](fit, parts, bits, split.seed)
    return query, database


def _aligned(fit: Side, parts: tuple[Side, ...]) -> tuple[Side, tuple[Side, ...]]:
    """Image vectors mapped to the text tower by ridge regression, all centred on the training items."""
    image_mean, text_mean = fit.image.mean(axis=0), fit.text.mean(axis=0)
    x, t = fit.image - image_mean, fit.text - text_mean
    gram = x.T @ x
    weight = RIDGE * np.trace(gram) / len(gram)
    mapping = np.linalg.solve(gram + weight * np.eye(len(gram), dtype=np.float32), x.T @ t).astype(np.float32)

    def apply(side: Side) -> Side:
        return Side(_unit((side.image - image_mean) @ mapping), _unit(side.text - text_mean))

    return apply(fit), tuple(apply(side) for side in parts)


def _unit(vectors: Matrix) -> Matrix:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def cosine(fit: Side, parts: tuple[Side, ...], bits: int, seed: int) -> tuple[Ranked, ...]:
    return tuple(Ranked(side.image, side.text) for side in _aligned(fit, parts)[1])


def sign(fit: Side, parts: tuple[Side, ...], bits: int, seed: int) -> tuple[Ranked, ...]:
    kept = min(fit.text.shape[1], MAX_BITS)

    def code(vectors: Matrix) -> Codes:
        """To whole bytes with bits that all items share, which no distance sees."""
        return pack(np.pad(vectors[:, :kept], ((0, 0), (0, -kept % 8))))

    return tuple(Ranked(code(side.image), code(side.text)) for side in _aligned(fit, parts)[1])


def lsh(fit: Side, parts: tuple[Side, ...], bits: int, seed: int) -> tuple[Ranked, ...]:
    planes = np.random.default_rng(seed).standard_normal((fit.text.shape[1], bits)).astype(np.float32)
    return tuple(Ranked(pack(side.image @ planes), pack(side.text @ planes)) for side in _aligned(fit, parts)[1])


def cca_itq(fit: Side, parts: tuple[Side, ...], bits: int, seed: int) -> tuple[Ranked, ...]:
    """Whiten both towers, keep the `bits` most correlated directions weighted by their correlation, rotate, sign."""
    image, image_map = _whitened(fit.image)
    text, text_map = _whitened(fit.text)
    u, correlation, vt = np.linalg.svd(image.T @ text / len(image))
    kept = min(bits, len(correlation))
    scale = correlation[:kept]

    def project(side: Side) -> Side:
        return Side(
            np.asarray(image_map(side.image) @ u[:, :kept] * scale, np.float32),
            np.asarray(text_map(side.text) @ vt[:kept].T * scale, np.float32),
        )

    learned = project(fit)
    rotation = _itq(np.concatenate([learned.image, learned.text]), bits, seed)
    sides = (project(side) for side in parts)
    return tuple(Ranked(pack(side.image @ rotation), pack(side.text @ rotation)) for side in sides)


def _whitened(vectors: Matrix, floor: float = 1e-3) -> tuple[Matrix, Callable[[Matrix], Matrix]]:
    mean = vectors.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov(vectors - mean, rowvar=False))
    whiten = axes / np.sqrt(values + floor * values.max())

    def apply(rows: Matrix) -> Matrix:
        return np.asarray((rows - mean) @ whiten, np.float32)

    return apply(vectors), apply


def _itq(vectors: Matrix, bits: int, seed: int, rounds: int = 50) -> Matrix:
    """The matrix [d, bits] with orthonormal rows that loses least in signing: alternate B = sign(VR) and the
    orthogonal Procrustes solution R for that B."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((bits, vectors.shape[1])))[0].T
    for _ in range(rounds):
        signs = np.where(vectors @ rotation >= 0, 1.0, -1.0)
        u, _, vt = np.linalg.svd(vectors.T @ signs, full_matrices=False)
        rotation = u @ vt
    return np.asarray(rotation, np.float32)


def pq(fit: Side, parts: tuple[Side, ...], bits: int, seed: int) -> tuple[Ranked, ...]:
    """Database vectors as one of 256 centroids in each of bits/8 slices, queries as they are. Fewer training vectors
    than that give fewer centroids, a power of two.

    The database side is decoded before it is compared: that is the asymmetric distance, written plainly.
    """
    faiss = _faiss()
    learned, (query, database) = _aligned(fit, parts)
    both = np.concatenate([learned.image, learned.text])
    slices = bits // 8
    width = -(-both.shape[1] // slices) * slices  # padded with zeros to whole slices

    def padded(vectors: Matrix) -> Matrix:
        return np.pad(vectors, ((0, 0), (0, width - vectors.shape[1])))

    quantiser = faiss.ProductQuantizer(width, slices, min(8, len(both).bit_length() - 1))
    quantiser.cp.seed = seed + 1
    quantiser.train(padded(both))

    def decoded(vectors: Matrix) -> Matrix:
        return np.asarray(quantiser.decode(quantiser.compute_codes(padded(vectors))), np.float32)

    return Ranked(padded(query.image), padded(query.text)), Ranked(decoded(database.image), decoded(database.text))


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise KenthashError("the control `pq` needs faiss: pip install 'kenthash[study]', or leave it out") from error
    return faiss


def has_faiss() -> bool:
    return importlib.util.find_spec("faiss") is not None


CONTROLS: dict[str, Control] = {"cosine": cosine, "sign": sign, "lsh": lsh, "cca-itq": cca_itq, "pq": pq}
