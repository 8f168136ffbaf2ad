"""What training has to do without, for studies: labels, captions, pictures and classes, which the recipe's section
`lacking` takes from the training items. Queries and database keep everything, so that figures stay comparable."""

from dataclasses import replace

import numpy as np

from kenthash.data.dataset import Dataset
from kenthash.data.splits import Rows, Split
from kenthash.errors import UsageError
from kenthash.evaluation.inputs import Labels
from kenthash.training.recipe import Lacking


def split_without(split: Split, dataset: Dataset, lacking: Lacking) -> Split:
    """The split without the items of classes that training never sees, in training and in validation, and without the
    share of the training items whose pictures are missing: a method learns pairs, and there is no half of a pair."""
    if lacking.classes:
        unseen = items_of(dataset, lacking.classes)
        split = replace(
            split, train=split.train[~unseen[split.train]], validation=split.validation[~unseen[split.validation]]
        )
    missing = _share(split.train, lacking.pictures, split.seed, 5)
    return replace(split, train=split.train[~np.isin(split.train, missing)]) if len(missing) else split


def items_of(dataset: Dataset, classes: list[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """[N] whether an item has a label of these classes."""
    if unknown := [name for name in classes if name not in dataset.classes]:
        raise UsageError(f"lacking.classes: {dataset.name} has no class {unknown[0]!r}")
    columns = [dataset.classes.index(name) for name in classes]
    return np.asarray((dataset.labels[:, columns] > 0).any(axis=1))


def labels_without(labels: Labels, rows: Rows, share: float, seed: int) -> Labels:
    """`labels` [N, C] in which each label of the training `rows` is dropped with the probability `share`."""
    if not share:
        return labels
    keeps_label = np.random.default_rng([seed, 6]).random((len(rows), labels.shape[1])) >= share
    fewer = labels.copy()
    fewer[rows] *= keeps_label.astype(labels.dtype)
    return fewer


def captions_without(captions: Rows, rows: Rows, share: float, seed: int) -> Rows:
    """The number of captions of each item, 0 for a share of the training `rows`."""
    fewer = captions.copy()
    fewer[_share(rows, share, seed, 7)] = 0
    return fewer


def _share(rows: Rows, share: float, seed: int, purpose: int) -> Rows:
    return np.random.default_rng([seed, purpose]).permutation(rows)[: round(share * len(rows))]
