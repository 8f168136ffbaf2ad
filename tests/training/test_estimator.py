"""`KentHasher` in the manner of scikit-learn: by scikit-learn's own checks, and by what it learns."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from kenthash import Hasher, KentHasher, UsageError
from kenthash.codes import hamming

# scikit-learn allows for this in its own CCA, which also learns from two matrices, by the name of the class.
EXPECTED = {
    "check_fit_score_takes_y": "the second argument is named X_text, not y",
    "check_transformer_data_not_an_array": "gives one column without the dimension of columns, in spite of the tags",
    "check_transformer_general": "the same",
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [KentHasher(bits=8, epochs=1)], expected_failed_checks=lambda estimator: EXPECTED
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def items(n: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    labels, centres = np.arange(n) % 4, np.random.default_rng(7).standard_normal((2, 4, 12))
    image, text = (centres[tower][labels] + 0.3 * rng.standard_normal((n, 12)) for tower in (0, 1))
    return image, text[:, :9], labels


def test_items_of_a_class_have_near_codes_across_both_kinds() -> None:
    hasher = KentHasher(bits=32, epochs=20, batch_size=64).fit(*items(400))
    image, text, labels = items(80, seed=1)
    distances = hamming(hasher.transform_text(text), hasher.transform(image))
    same = labels[:, None] == labels[None, :]
    assert distances[same].mean() < 0.5 * distances[~same].mean()
    assert list(hasher.classes_) == [0, 1, 2, 3]


def test_what_it_learned_is_saved_copied_and_repeated(tmp_path: Path) -> None:
    image, text, labels = items(60)
    hot = np.eye(4, dtype=int)[labels]
    hasher = KentHasher(bits=16, epochs=2).fit(image, text, hot)
    codes = hasher.transform(image)
    hasher.save(tmp_path)
    assert np.array_equal(Hasher.load(tmp_path).encode_image_features(image), codes)
    assert np.array_equal(pickle.loads(pickle.dumps(hasher)).transform(image), codes)
    assert np.array_equal(clone(hasher).fit_transform(image, text, labels), codes)  # classes mean the same as multi-hot


def test_pairs_alone_are_enough() -> None:
    image, text, _ = items(100)
    assert KentHasher(bits=16, epochs=2).fit(image, text).transform_text(text).shape == (100, 2)
    one_class = KentHasher(bits=16, epochs=2).fit(image, text, np.zeros(100))
    assert np.array_equal(one_class.transform(image), KentHasher(bits=16, epochs=2).fit_transform(image, text))


def test_wrong_input_is_a_value_error() -> None:
    image, text, labels = items(20)
    with pytest.raises(NotFittedError):
        KentHasher().transform(image)
    with pytest.raises(UsageError, match="X_text is missing"):
        KentHasher().fit(image, None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="20 rows of X_image and 19 of X_text"):
        KentHasher().fit(image, text[:19], labels)
    with pytest.raises(UsageError, match="labels of shape"):
        KentHasher().fit(image, text, labels[:3])
    with pytest.raises(UsageError, match="0 or 1"):
        KentHasher().fit(image, text, np.full((20, 2), 3))
    with pytest.raises(UsageError, match=r"labels of shape \(\)"):
        KentHasher().fit(image, text, 5)
    with pytest.raises(UsageError, match="dsph needs labels that some items share and others do not: all 20 items"):
        KentHasher(method="dsph").fit(image, text, np.zeros(20))
    with pytest.raises(UsageError, match="9 were learned from"):
        KentHasher(bits=8, epochs=1).fit(image, text, labels).transform_text(image)
    with pytest.raises(ValueError, match="NaN"):
        KentHasher().fit(np.full_like(image, np.nan), text, labels)
    with pytest.raises(ValueError, match="multiple of 8"):
        KentHasher(bits=13).fit(image, text, labels)
