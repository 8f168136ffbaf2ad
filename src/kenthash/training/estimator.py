"""Codes of vectors that are at hand, in the manner of scikit-learn:

    from kenthash import KentHasher
    hasher = KentHasher(bits=64).fit(X_image, X_text, labels)
    codes, queries = hasher.transform(X_image), hasher.transform_text(X_text)  # uint8 [n, 8]

It has no validation set and no run folder: the weights are those of the last epoch. `kenthash train` chooses the epoch,
evaluates, and can be resumed.
"""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import nn

from kenthash.codes import Codes, pack
from kenthash.data.check import why_labels_teach_nothing
from kenthash.data.dataset import Dataset
from kenthash.data.pack import FeaturePack
from kenthash.encoders import check_device
from kenthash.errors import UsageError
from kenthash.methods import METHODS
from kenthash.model.network import HashNetwork
from kenthash.training.loop import Training
from kenthash.training.recipe import make_recipe
from kenthash.training.sources import FeatureSource


class KentHasher(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns codes for two kinds of vectors, such that vectors of like items have near codes.

    `method` is one of `kenthash train --method`; by default `kaph` with labels that tell items apart, and `kcph`, which
    learns from pairs alone, without. `recipe` has further values of a recipe, such as
    `{"head": {"kind": "mlp", "hidden": 512}}`.

    Example, of 60 items of three classes:

        >>> rng = np.random.default_rng(0)
        >>> labels = np.arange(60) % 3
        >>> X_image, X_text = rng.normal(labels[:, None], 0.1, (60, 5)), rng.normal(labels[:, None], 0.1, (60, 4))
        >>> hasher = KentHasher(bits=16, epochs=3).fit(X_image, X_text, labels)
        >>> hasher.transform(X_image).shape, hasher.transform_text(X_text[:2]).shape
        ((60, 2), (2, 2))
    """

    def __init__(
        self,
        bits: int = 64,
        method: str | None = None,
        epochs: int = 20,
        batch_size: int = 128,
        random_state: int = 0,
        device: str = "auto",
        recipe: dict[str, Any] | None = None,
    ) -> None:
        self.bits = bits
        self.method = method
        self.epochs = epochs
        self.batch_size = batch_size
        self.random_state = random_state
        self.device = device
        self.recipe = recipe

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # codes are bytes
        # `X_text` is in the place of scikit-learn's `y`, and a matrix, as in its CCA and PLSCanonical.
        tags.target_tags.required = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X_image: ArrayLike, X_text: ArrayLike, labels: ArrayLike | None = None) -> Self:
        """Learn from pairs: row i of `X_image` [n, Di] and of `X_text` [n, Dt] are one item. `labels` are classes [n],
        or multi-hot [n, C]; items are relevant to each other where they share one."""
        image = validate_data(self, X_image, dtype=np.float32, ensure_min_samples=2)
        if X_text is None:
            raise UsageError("X_text is missing: Expected array-like (array or non-string sequence), got None")
        text = check_array(X_text, dtype=np.float32, input_name="X_text")
        if len(image) != len(text):
            raise UsageError(f"{len(image)} rows of X_image and {len(text)} of X_text: they have to be pairs")
        hot, classes = _multi_hot(labels, len(image))
        dataset = Dataset("vectors", [str(row) for row in range(len(image))], hot, [str(name) for name in classes])
        offsets = np.arange(len(image) + 1, dtype=np.int64)
        device = torch.device(check_device(self.device))
        source = FeatureSource(FeaturePack(Path("vectors"), dataset, image, text, offsets, {}), device)
        fault = why_labels_teach_nothing(hot) if hot.any() else "there are none"
        method = self.method or ("kcph" if fault else "kaph")
        if fault and method in METHODS and METHODS[method].needs_labels:
            raise UsageError(f"{method} needs labels that some items share and others do not: {fault}")
        recipe = make_recipe(
            self.recipe or {},
            {
                "method": method,
                "bits": self.bits,
                "epochs": self.epochs,
                "batch": self.batch_size,
                "seed": self.random_state,
            },
        )
        training = Training(recipe, source, np.arange(len(image)), device)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # heads are too small to share, and sums come out the same on every machine
        try:
            for number in range(training.epochs):
                training.epoch(number, lambda step, values: None)
        finally:
            torch.set_num_threads(threads)
        training.modules.eval()
        self.classes_ = np.asarray(classes)
        self.n_features_text_in_ = text.shape[1]
        self.network_: HashNetwork = training.network
        return self

    def fit_transform(self, X_image: ArrayLike, X_text: ArrayLike, labels: ArrayLike | None = None) -> Codes:
        """Learn, and the codes of `X_image`."""
        return self.fit(X_image, X_text, labels).transform(X_image)

    def transform(self, X_image: ArrayLike) -> Codes:
        """Codes [n, bits / 8] of pictures' vectors."""
        check_is_fitted(self)
        return self._codes(self.network_.image_head, validate_data(self, X_image, dtype=np.float32, reset=False))

    def transform_text(self, X_text: ArrayLike) -> Codes:
        """Codes [n, bits / 8] of texts' vectors."""
        check_is_fitted(self)
        text = check_array(X_text, dtype=np.float32, input_name="X_text")
        if text.shape[1] != self.n_features_text_in_:
            raise UsageError(f"X_text has {text.shape[1]} features, but {self.n_features_text_in_} were learned from")
        return self._codes(self.network_.text_head, text)

    def save(self, folder: Path | str) -> None:
        """Write a model folder, which `Hasher.load` opens; `encode_image_features` there gives the same codes."""
        check_is_fitted(self)
        self.network_.save(folder)

    def _codes(self, head: nn.Module, vectors: NDArray[np.float32]) -> Codes:
        with torch.inference_mode():
            outputs = head(torch.from_numpy(vectors).to(next(head.parameters()).device))
        return pack(outputs.cpu().numpy())


def _multi_hot(labels: ArrayLike | None, items: int) -> tuple[NDArray[np.uint8], list[Any]]:
    """Labels [items, C] of 0 and 1, and the names of the classes."""
    if labels is None:
        return np.zeros((items, 0), np.uint8), []
    array = np.asarray(labels)
    if array.ndim not in (1, 2) or len(array) != items:
        raise UsageError(f"labels of shape {array.shape}: give [{items}] classes or [{items}, C] of 0 and 1")
    if array.ndim == 1:
        classes, numbers = np.unique(array, return_inverse=True)
        return np.eye(len(classes), dtype=np.uint8)[numbers], classes.tolist()
    if not np.isin(array, (0, 1)).all():
        raise UsageError("labels of two dimensions must be 0 or 1")
    return array.astype(np.uint8), list(range(array.shape[1]))
