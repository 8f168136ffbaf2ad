"""What a model reaches on data that it was not trained on: how soon a caption finds its photo, and a photo its caption,
and how far the relevance of its hits is from the share of right ones.

`kenthash evaluate` scores a run on the query items of its own data; a pretrained model has no such items here.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import pack as pack_bits
from kenthash.data.dataset import Dataset
from kenthash.data.pack import FeaturePack, is_pack
from kenthash.data.readers import read_dataset
from kenthash.data.splits import Rows
from kenthash.encoders.pipeline import features_for
from kenthash.errors import DataError, UsageError
from kenthash.evaluation.instances import instance_scores
from kenthash.files import expand
from kenthash.model.calibration import calibrate, calibration_errors
from kenthash.model.hasher import Hasher
from kenthash.model.pretrained import find_model
from kenthash.model.relevance import QueryKind, Relevance


@dataclass(frozen=True)
class Transfer:
    """Recall in per cent, expected over the orders of ties, by code length and direction ("t2i", "i2t")."""

    items: int
    vectors: str  # whose they are
    recall: dict[int, dict[str, dict[int, float]]]  # of codes, at 1, 5 and 10
    real_valued_query: dict[int, dict[str, float]]  # at 10, where the query is not signed
    # Expected calibration error of the relevance, from 0 to 1; none where the model or the data has nothing to tell it.
    calibration_error: dict[int, dict[QueryKind, float]] = field(default_factory=dict)

    def text(self) -> str:
        head = f"{'bits':>5}  {'':<13}{'R@1':>7}{'R@5':>7}{'R@10':>7}{'real query R@10':>18}"
        lines = [head, "─" * len(head)]
        for bits, directions in self.recall.items():
            for direction, recall in directions.items():
                name = {"t2i": "text → image", "i2t": "image → text"}[direction]
                figures = "".join(f"{recall[k]:>7.1f}" for k in (1, 5, 10))
                lines.append(f"{bits:>5}  {name:<13}{figures}{self.real_valued_query[bits][direction]:>18.1f}")
        about = f"a photo and its first caption among {self.items:,} items · recall in per cent · ties: expected"
        lines += [about, f"vectors: {self.vectors}"]
        for kind, name in (("words", "in words"), ("picture", "by a picture")):
            errors = [
                f"{bits} bits {kinds[kind]:.3f}" for bits, kinds in self.calibration_error.items() if kind in kinds
            ]
            if errors:
                lines.append(f"calibration error of the relevance, asked {name}: {', '.join(errors)}")
        return "\n".join(lines)


def evaluate_transfer(model: Path | str, data: Path, query: int | None = None, seed: int = 0) -> Transfer:
    """Score a model on the items of a data set, of which `query` draws some: the query items that `train` would draw by
    this seed. Pictures are encoded by the model's own encoder; the vectors of a feature pack are taken as they are,
    unless it says that they come from another encoder."""
    hasher = Hasher.load(model, "cpu")
    pack, rows, whose = _items(hasher, expand(data), query, seed)
    images = hasher.image_outputs(pack.image[rows])
    texts = hasher.text_outputs(pack.text[pack.text_offsets[:-1][rows]])
    errors = {}
    if hasher.relevance is not None:
        with suppress(DataError):  # too few items, or too little is known of them
            errors = calibration_errors(hasher, hasher.relevance, pack, rows, seed)
    rows = np.arange(len(images))
    recall: dict[int, dict[str, dict[int, float]]] = {}
    real: dict[int, dict[str, float]] = {}
    for bits in (*hasher.config.nested, hasher.config.bits):
        recall[bits], real[bits] = {}, {}
        for direction, queries, items in (("t2i", texts, images), ("i2t", images, texts)):
            outputs, codes = queries[:, :bits], pack_bits(items[:, :bits])
            scores = instance_scores(pack_bits(outputs), codes, rows, rows)
            recall[bits][direction] = {k: 100 * value for k, value in scores.recall.items()}
            real[bits][direction] = 100 * instance_scores(outputs, codes, rows, rows).recall[10]
    return Transfer(len(rows), whose, recall, real, errors)


def calibrate_model(model: Path | str, data: Path, query: int | None = None, seed: int = 0) -> Relevance:
    """Fit the relevance of a model's hits (see `calibration`) on items that it was not trained on, drawn as above, and
    write it into the model's folder."""
    hasher = Hasher.load(model, "cpu")
    pack, rows, _ = _items(hasher, expand(data), query, seed)
    relevance = calibrate(hasher, pack, rows, seed)
    relevance.write(find_model(model))
    return relevance


def _items(hasher: Hasher, data: Path, query: int | None, seed: int) -> tuple[FeaturePack, Rows, str]:
    """The items drawn, as rows of a pack of vectors, and whose these are."""
    if hasher.config.encoder_trained:
        raise UsageError(
            f"{hasher.folder}: its encoder was trained with it, so that no pack has its vectors: only models of "
            "encoders as they were published are measured on other data"
        )
    if is_pack(data):
        pack = FeaturePack.open(data)
        rows = _rows(np.diff(pack.text_offsets), query, seed, data)
        if pack.encoder_weights and pack.encoder_weights != hasher.config.encoder_weights:
            raise UsageError(
                f"{data}: its vectors are of {pack.encoder}, the model takes those of {hasher.config.encoder}"
            )
        whose = (
            pack.encoder or f"the pack's own, which does not say by which weights ({pack.encoders.get('image', '')})"
        )
        return pack, rows, whose
    dataset = read_dataset(data)
    rows = _rows(np.array([len(texts) for texts in dataset.captions()]), query, seed, data)
    pack = features_for(_part(dataset, rows), hasher.config.encoder)
    return pack, np.arange(len(pack)), hasher.config.encoder


def _rows(captions: NDArray[np.int64], query: int | None, seed: int, data: Path) -> Rows:
    """The items drawn that have a caption."""
    rows = np.arange(len(captions)) if query is None else np.random.default_rng(seed).permutation(len(captions))[:query]
    if not captions[rows].any():
        raise DataError(f"{data}: none of its items has a text: there is nothing to find pictures by")
    return rows[captions[rows] > 0]


def _part(dataset: Dataset, rows: Rows) -> Dataset:
    assert dataset.pictures is not None and dataset.texts is not None
    return replace(
        dataset,
        ids=[dataset.ids[row] for row in rows],
        labels=dataset.labels[rows],
        pictures=[dataset.pictures[row] for row in rows],
        texts=[dataset.texts[row] for row in rows],
    )
