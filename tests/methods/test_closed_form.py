"""Controls with codes: what their maps promise, and that they are models like any other."""

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kenthash import Hasher
from kenthash.codes import MAX_BITS, hamming, pack, unpack
from kenthash.data.pack import FeaturePack
from kenthash.data.splits import make_split
from kenthash.errors import UsageError
from kenthash.methods import METHODS, ClosedForm, Shapes, settings_of
from kenthash.methods.closed_form import Sign, aligned, itq, whitening
from kenthash.training.evaluate import evaluate_run
from kenthash.training.recipe import make_recipe
from kenthash.training.train import train_run
from packs import write_pack

Matrix = NDArray[np.float32]
CONTROLS = [key for key, method in METHODS.items() if issubclass(method, ClosedForm)]


def towers(items: int, image: int, text: int, shared: int = 6) -> tuple[Matrix, Matrix]:
    """Vectors of two towers, both linear in what the items are, with noise."""
    rng = np.random.default_rng(0)
    kinds = rng.standard_normal((items, shared))
    sides = [
        kinds @ rng.standard_normal((shared, d)) + 0.3 * rng.standard_normal((items, d)) + 2 for d in (image, text)
    ]
    return sides[0].astype(np.float32), sides[1].astype(np.float32)


def make(key: str, bits: int, image: Matrix, text: Matrix) -> ClosedForm:
    shapes = Shapes(0, bits, image.shape[1], text.shape[1], len(image))
    method = METHODS[key](shapes, settings_of(METHODS[key], {}))
    assert isinstance(method, ClosedForm)
    return method


def test_alignment_is_the_solution_of_ridge_regression() -> None:
    """Against gradient descent's end: at the minimum of ‖X W − T‖² + λ‖W‖² the slope is 0."""
    image, text = towers(50, 7, 5)
    of_image, of_text = aligned(image, text)
    x, t = image - image.mean(axis=0), text - text.mean(axis=0)
    ridge = np.trace(x.T @ x) / 7
    slope = x.T @ (x @ of_image.weight - t) + ridge * of_image.weight
    assert np.abs(slope).max() < 1e-3 * np.abs(x.T @ t).max()
    np.testing.assert_allclose(of_image(image).mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(of_text(text), t, atol=1e-5)


def test_whitened_vectors_are_uncorrelated() -> None:
    image, _ = towers(500, 6, 5)
    np.testing.assert_allclose(np.cov(whitening(image, floor=0.0)(image), rowvar=False), np.eye(6), atol=1e-3)


def test_itq_loses_less_by_signing_than_its_start() -> None:
    rng = np.random.default_rng(1)
    vectors = (rng.standard_normal((400, 8)) * [9, 5, 3, 2, 1, 1, 1, 1]).astype(np.float32)

    def loss(rotation: Matrix) -> float:
        turned = vectors @ rotation
        return float(np.square(np.where(turned >= 0, 1, -1) - turned).sum())

    learned = itq(vectors, 8, seed=0)
    assert learned @ learned.T == pytest.approx(np.eye(8), abs=1e-5)
    assert loss(learned) < loss(itq(vectors, 8, seed=0, rounds=0))


def test_lsh_keeps_angles() -> None:
    """Two vectors at angle θ differ in a share θ/π of random-hyperplane bits (Charikar 2002)."""
    image, text = towers(80, 8, 12)
    of_text = make("lsh", 1024, image, text).fit(image, text, seed=0)[1]
    codes = pack(of_text(text))
    unit = text - text.mean(axis=0)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    angles = np.arccos(np.clip(unit @ unit.T, -1, 1)) / math.pi
    assert hamming(codes, codes) / 1024 == pytest.approx(angles, abs=0.08)


@pytest.mark.parametrize("bits", [8, 16])
def test_rabitqs_bits_estimate_inner_products(bits: int) -> None:
    """A real-valued query with the signs of an item, by the item's factors, is near to their inner product."""
    image, text = towers(400, 8, 12, shared=4)
    of_text = make("rabitq-bits", bits, image, text).maps(image, text, seed=0)[1]
    turned = of_text(text)
    signs = np.where(turned >= 0, 1, -1)
    factors = np.square(turned).sum(axis=1) / (turned * signs).sum(axis=1)
    estimate, exact = turned @ signs.T * factors, (text - text.mean(axis=0)) @ (text - text.mean(axis=0)).T
    assert np.corrcoef(estimate.ravel(), exact.ravel())[0, 1] > 0.93
    assert np.corrcoef((turned @ signs.T).ravel(), exact.ravel())[0, 1] > 0.85  # as an index ranks


@pytest.mark.parametrize("dimensions", [20, 1030])
def test_towers_of_any_size_have_signs(dimensions: int) -> None:
    image, text = towers(30, 8, dimensions)
    bits, used = Sign.fixed_bits(dimensions), min(dimensions, MAX_BITS)
    with pytest.raises(UsageError, match=f"use --bits {bits}"):
        make("sign", 16, image, text)
    codes = pack(make("sign", bits, image, text).fit(image, text, seed=0)[1](text))
    assert unpack(codes).shape[1] == bits == -(-used // 8) * 8
    centred = (text - text.mean(axis=0))[:, :used] >= 0
    assert np.array_equal(hamming(codes, codes), (centred[:, None] != centred[None]).sum(axis=2))


@pytest.mark.parametrize("key", CONTROLS)
@pytest.mark.parametrize("same", [0.0, 1.0])
def test_vectors_that_are_all_the_same_are_mapped_to_one_code(key: str, same: float) -> None:
    _, text = towers(40, 8, 16)
    image = np.full((40, 8), same, np.float32)
    for pictures, texts in ((image, text), (image, np.full_like(text, same))):
        of_image, _ = make(key, 16, pictures, texts).fit(pictures, texts, seed=0)
        assert len(np.unique(pack(of_image(pictures)), axis=0)) == 1


@pytest.mark.parametrize("key", CONTROLS)
def test_a_control_is_a_model_that_finds_more_than_chance(key: str, tmp_path: Path) -> None:
    folder = write_pack(tmp_path / "pack", noise=0.3)
    bits = 24 if key == "sign" else 32
    recipe = make_recipe({"data": str(folder), "method": key, "bits": bits, "epochs": 5, "head": {"hidden": 9}})
    train_run(recipe, tmp_path / "run", quiet=True)
    metrics = evaluate_run(tmp_path / "run", figures=False).metrics
    assert metrics["epoch"] == 1 and min(metrics[d]["map"] for d in ("i2t", "t2i")) > 0.45  # random codes: .34
    features, train = FeaturePack.open(folder), make_split(400, seed=0).train
    image, text = (np.asarray(v, np.float32) for v in (features.image, features.text[features.text_offsets[:-1]]))
    of_image, of_text = make(key, bits, image, text).fit(image[train], text[train], seed=0)
    hasher = Hasher.load(tmp_path / "run")
    same = [
        unpack(hasher.encode_image_features(image)) == unpack(pack(of_image(image))),
        unpack(hasher.encode_text_features(text)) == unpack(pack(of_text(text))),
    ]
    assert min(bits.mean() for bits in same) > 0.9999  # but for a value at 0, which rounding may move across
