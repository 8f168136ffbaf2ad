"""Controls that are fitted, not trained, and need no labels: a linear map of each tower's vectors, and its signs.

    sign         the signs of the text vectors, and of the picture vectors mapped onto them by ridge regression,
                 centred: as many bits as the text tower has dimensions, at most 1,024
    lsh          the signs of their products with random planes (Charikar, STOC 2002)
    cca-itq      canonical correlation analysis of the two towers, then the rotation that costs least in signing
                 (Gong & Lazebnik, CVPR 2011)
    rabitq-bits  the bits of RaBitQ without their factors: the aligned vectors' principal components, turned at random,
                 signed (Gao & Long, SIGMOD 2024)

They are what learned codes must be ahead of. As heads of one linear layer they are models like any other: saved,
indexed and served. What ranks by real values instead (float vectors, product quantisation, RaBitQ with its factors) has
no codes to compare by Hamming distance and cannot be one; `studies/controls.py` has those.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kenthash.codes import MAX_BITS
from kenthash.errors import UsageError
from kenthash.methods.base import Batch, Method, Shapes

Matrix = NDArray[np.float32]
RIDGE = 1.0  # times the mean eigenvalue of the image tower's covariance; flat between 0.1 and 10
LEAST_RIDGE = 1e-30  # where all pictures have one vector, which is then mapped to 0
SPREAD = 0.5  # root mean square of the values before tanh, which hardly bends them there


@dataclass(frozen=True)
class Affine:
    """x W + b for rows x [N, D]."""

    weight: Matrix  # [D, K]
    bias: Matrix  # [K]

    def __call__(self, rows: Matrix) -> Matrix:
        return np.asarray(rows @ self.weight + self.bias, np.float32)

    def then(self, weight: Matrix) -> "Affine":
        return Affine(np.asarray(self.weight @ weight, np.float32), np.asarray(self.bias @ weight, np.float32))


def aligned(image: Matrix, text: Matrix) -> tuple[Affine, Affine]:
    """Maps of both towers into one space: pictures onto texts by ridge regression, both centred on these items."""
    image_mean, text_mean = image.mean(axis=0), text.mean(axis=0)
    x, t = image - image_mean, text - text_mean
    gram = x.T @ x
    ridge = max(RIDGE * np.trace(gram) / len(gram), LEAST_RIDGE)
    weight = np.linalg.solve(gram + ridge * np.eye(len(gram), dtype=np.float32), x.T @ t).astype(np.float32)
    return Affine(weight, -image_mean @ weight), Affine(np.eye(text.shape[1], dtype=np.float32), -text_mean)


@dataclass(frozen=True)
class Settings:
    """They have none."""


class ClosedForm(Method):
    """A method that is fitted at once and takes no steps: of a recipe only data, split, bits and seed concern it."""

    fidelity = "control"
    settings_class = Settings
    needs_labels = False

    def maps(self, image: Matrix, text: Matrix, seed: int) -> tuple[Affine, Affine]:
        """The maps of both towers, fitted on pairs of vectors, [N, Di] and [N, Dt]; bit i is the sign of value i."""
        raise NotImplementedError

    def fit(self, image: Matrix, text: Matrix, seed: int) -> tuple[Affine, Affine]:
        """`maps`, with values of the size that the tanh of a head takes."""
        maps = self.maps(image, text, seed)
        size = np.sqrt(np.mean([np.square(m(rows)).mean() for m, rows in zip(maps, (image, text), strict=True)]))
        scale = np.float32(SPREAD / max(size, 1e-12))
        return Affine(maps[0].weight * scale, maps[0].bias * scale), Affine(
            maps[1].weight * scale, maps[1].bias * scale
        )

    @classmethod
    def fixed_bits(cls, text_dim: int) -> int | None:
        """The one code length that it has, None where it has any."""
        return None

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        return {}

    def weights(self) -> dict[str, float]:
        return {}


class Sign(ClosedForm):
    key = title = "sign"
    citation = "kenthash, the signs of the vectors themselves, 2026"

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        if shapes.bits != (bits := self.fixed_bits(shapes.text_dim)):
            raise UsageError(f"sign has one bit per dimension of the text vectors: use --bits {bits}")

    @classmethod
    def fixed_bits(cls, text_dim: int) -> int:
        """In whole bytes: the last bits may be ones that all items share, which no distance sees."""
        dims = min(text_dim, MAX_BITS)
        return dims + -dims % 8

    def maps(self, image: Matrix, text: Matrix, seed: int) -> tuple[Affine, Affine]:
        def cut(affine: Affine) -> Affine:
            dims = min(text.shape[1], MAX_BITS)
            more = self.shapes.bits - dims
            weight = np.pad(affine.weight[:, :dims], ((0, 0), (0, more)))
            return Affine(weight, np.pad(affine.bias[:dims], (0, more), constant_values=float(np.abs(text).mean())))

        of_image, of_text = aligned(image, text)
        return cut(of_image), cut(of_text)


class Lsh(ClosedForm):
    key = title = "lsh"
    citation = "Charikar, Similarity Estimation Techniques from Rounding Algorithms, STOC 2002"

    def maps(self, image: Matrix, text: Matrix, seed: int) -> tuple[Affine, Affine]:
        planes = np.random.default_rng(seed).standard_normal((text.shape[1], self.shapes.bits)).astype(np.float32)
        of_image, of_text = aligned(image, text)
        return of_image.then(planes), of_text.then(planes)


class CcaItq(ClosedForm):
    key = title = "cca-itq"
    citation = "Gong & Lazebnik, Iterative Quantization: A Procrustean Approach to Learning Binary Codes, CVPR 2011"

    def maps(self, image: Matrix, text: Matrix, seed: int) -> tuple[Affine, Affine]:
        """Whiten both towers, keep the `bits` most correlated directions weighted by their correlation, rotate."""
        white_image, white_text = whitening(image), whitening(text)
        u, correlation, vt = np.linalg.svd(white_image(image).T @ white_text(text) / len(image))
        dims = min(self.shapes.bits, len(correlation))
        scale = correlation[:dims]
        of_image, of_text = white_image.then(u[:, :dims] * scale), white_text.then(vt[:dims].T * scale)
        rotation = itq(np.concatenate([of_image(image), of_text(text)]), self.shapes.bits, seed)
        return of_image.then(rotation), of_text.then(rotation)


class RabitqBits(ClosedForm):
    """RaBitQ estimates ⟨q, o⟩ by ⟨q, s⟩ ‖o‖² / ⟨o, s⟩, s the signs of an item o, q a real-valued query. An index that
    holds the signs ranks by ⟨q, s⟩ alone: real-valued queries (`Hasher.query_texts`) are the estimate without the
    factors of the items, 8 bytes each, and codes the same with the query signed, too."""

    key = title = "rabitq-bits"
    citation = "Gao & Long, RaBitQ: Quantizing High-Dimensional Vectors with a Theoretical Error Bound, SIGMOD 2024"

    def maps(self, image: Matrix, text: Matrix, seed: int) -> tuple[Affine, Affine]:
        of_image, of_text = aligned(image, text)
        both = np.concatenate([of_image(image), of_text(text)])
        axes = np.linalg.eigh(both.T @ both)[1][:, ::-1][:, : self.shapes.bits]
        turned = np.asarray(axes @ itq(both @ axes, self.shapes.bits, seed, rounds=0), np.float32)
        return of_image.then(turned), of_text.then(turned)


def whitening(vectors: Matrix, floor: float = 1e-3) -> Affine:
    """The map to zero mean and unit covariance; directions with hardly any spread are not blown up, and vectors that
    are all the same are mapped to 0."""
    mean = vectors.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov(vectors - mean, rowvar=False))
    spread = values + floor * values.max()
    weight = np.asarray(axes / np.sqrt(np.where(spread > 0, spread, np.inf)), np.float32)
    return Affine(weight, -mean @ weight)


def itq(vectors: Matrix, bits: int, seed: int, rounds: int = 50) -> Matrix:
    """The matrix [d, bits] with orthonormal rows that loses least in signing: alternate B = sign(VR) and the
    orthogonal Procrustes solution R for that B."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((bits, vectors.shape[1])))[0].T
    for _ in range(rounds):
        signs = np.where(vectors @ rotation >= 0, 1.0, -1.0)
        u, _, vt = np.linalg.svd(vectors.T @ signs, full_matrices=False)
        rotation = u @ vt
    return np.asarray(rotation, np.float32)
