"""Short texts in training: what people type ("dog", "a photo of a dog", "red hat"), and which pictures that asks for.

Every class is asked for by its name in several prompts, and its items have that label. Every phrase that captions of
several training items share (`data/short_texts.py`) is asked for as it is and in one prompt, and its items have it in a
caption. Each step draws some of those that an item of the batch answers; the method ranks the pictures by them.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from kenthash.data.dataset import Dataset
from kenthash.data.pack import FeaturePack
from kenthash.data.short_texts import TRAINED, in_prompt, shared_phrases
from kenthash.data.splits import Rows
from kenthash.evaluation.inputs import Labels
from kenthash.methods import Method
from kenthash.training.distributed import world_size
from kenthash.training.sources import NO_ENCODER, OR_BY_RECIPE, VectorSource

MOST = 64  # short texts of a step

Mask = NDArray[np.bool_]


class ShortTexts:
    """The concepts that short texts ask for, classes first and then phrases, of the training items `rows`.

    `labels` and the number of `captions` are those that are learned from, of all items. A phrase that is also the name
    of a class is asked for once, as the class.
    """

    def __init__(self, dataset: Dataset, labels: Labels, captions: Rows, rows: Rows) -> None:
        known, texts_of = labels[rows] > 0, dataset.captions()
        classes = np.flatnonzero(known.any(axis=0))
        names = [dataset.classes[number] for number in classes]
        phrases = shared_phrases([texts_of[row] if captions[row] else [] for row in rows])
        for name in names:
            phrases.pop(name.lower(), None)
        prompts = [template for template in TRAINED if template != "{}"]
        texts = [[in_prompt(template, name) for template in TRAINED] for name in names]
        texts += [[phrase, in_prompt(prompts[at % len(prompts)], phrase)] for at, phrase in enumerate(phrases)]
        self.texts = [text for own in texts for text in own]
        self._first = np.cumsum([0, *map(len, texts)])  # text of each concept
        self._classes = len(names)
        items = [np.flatnonzero(known[:, number]) for number in classes] + [np.array(own) for own in phrases.values()]
        owners = np.repeat(np.arange(len(items)), [len(own) for own in items])
        rows_of = np.concatenate(items) if items else np.empty(0, np.int64)
        ones = np.ones(len(owners), np.bool_)
        self._relevant = csr_array((ones, (rows_of, owners)), (len(rows), len(items)))  # items by concepts
        self._labelled: Mask = np.asarray(known.any(axis=1))
        self._captioned: Mask = captions[rows] > 0

    def draw(self, items: Rows, rng: np.random.Generator) -> tuple[Rows, Mask, Mask]:
        """For the training items at these positions: numbers of some texts [P], and which of the items [P, B] they ask
        for, and of which that is known. Texts that all of these or none of them answer are not drawn."""
        relevant = self._relevant[items].toarray().T
        counted = np.concatenate(
            [
                np.tile(self._labelled[items], (self._classes, 1)),
                np.tile(self._captioned[items], (len(relevant) - self._classes, 1)),
            ]
        )
        number = relevant.sum(axis=1)
        concepts = rng.permutation(np.flatnonzero((number > 0) & (number < counted.sum(axis=1))))[:MOST]
        concepts = concepts[: len(concepts) - len(concepts) % world_size()]
        texts = self._first[concepts] + rng.integers(np.diff(self._first)[concepts]) if len(concepts) else concepts
        return texts, relevant[concepts], counted[concepts]

    def vectors(self, numbers: Rows, source: VectorSource) -> Tensor:
        """Vectors of texts by their numbers, with gradients where `source` has an encoder that learns."""
        return source.written([self.texts[number] for number in numbers], train=True)


def unlearned_short_texts(methods: Iterable[type[Method]], pack: FeaturePack, named: str | None) -> str:
    """The line that says which of the methods do not learn from short texts in this pack, and what to do; "" where
    there are none, or where an encoder is known or `named`; None is of a command that cannot name one."""
    if pack.encoder or named:
        return ""
    titles = [method.title for method in methods if method.uses_short_texts is not Method.uses_short_texts]
    advice = NO_ENCODER if named is None else NO_ENCODER + OR_BY_RECIPE
    return f"{', '.join(titles)}: short texts are not learned from: {advice}" if titles else ""


def no_short_texts(source: VectorSource) -> str:
    """Why short texts cannot be encoded; "" where they can."""
    return source.no_texts
