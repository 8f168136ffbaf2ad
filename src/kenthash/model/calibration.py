"""How often a hit is right, measured: trial searches in folders of photos whose captions and labels are known.

The photos are dealt into folders of 100, then of 250, then of 1,000. In each, three kinds of questions are asked, as
many of each, and the ten nearest photos are judged:

- the name of a class: right is a photo with that label;
- a noun of the captions of all folders, so that most are not in this one: right is a photo whose captions or labels
  have the word. Only photos with three captions or more are in the folder then: of others too little is known;
- a caption that names at least one class, half of them of photos in other folders: right is its own photo, and any
  photo with all the classes that it names.

So many questions ask for what is not there, as people's do, and a hit has to be good by itself. A picture is asked with
in its own folder, without itself: right is a photo that shares at least half of the labels of both (their
intersection over their union).

The expected calibration error is the mean of |relevance − share of right hits| over ten bins of relevance, weighted by
the number of hits (Naeini, Cooper & Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI
2015).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kenthash.data.pack import FeaturePack
from kenthash.data.splits import Rows
from kenthash.errors import DataError
from kenthash.model.hasher import Hasher
from kenthash.model.relevance import Coefficients, Floats, QueryKind, Relevance, features, logistic

FOLDERS = (100, 250, 1000)  # photos
QUESTIONS = 320  # of a kind, in all folders of a size
HITS = 10  # judged per question
CAPTIONS = 3  # of a photo whose captions say what it does not show
BINS = 10
LEAST_ITEMS = 200
SMOOTHING = 1e-3  # keeps coefficients finite where the hits can be told apart without error

# A noun stands after an article and before one of these, or at the end, at least twice.
ARTICLES = ("a", "an", "the")
AFTER_NOUNS = re.compile(
    "with|in|on|of|and|at|is|near|next|that|by|to|under|over|behind|inside|while|are|has|from|for|beside"
)
NOT_NOUNS = re.compile(
    "top|front|side|back|middle|bottom|edge|end|group|lot|bunch|couple|pair|set|row|line|number|variety|piece|view|"
    "picture|photo|photograph|image|background|distance|area|way|one|two|other|large|small|white|black|red|green|blue|"
    "yellow|brown"
)


class Trials(NamedTuple):
    """Judged hits."""

    features: Floats  # [n, 3] (see `relevance.features`)
    right: NDArray[np.bool_]  # [n]


@dataclass(frozen=True)
class _Question:
    outputs: NDArray[np.float32]  # [bits]
    rows: Rows  # the photos to look through
    right: NDArray[np.bool_]  # [rows]


def calibrate(hasher: Hasher, pack: FeaturePack, rows: Rows | None = None, seed: int = 0) -> Relevance:
    """The relevance of a model's hits, for every length of its codes, fitted on the items `rows` of a pack, or on all.
    The model must not have been trained on them."""
    used_rows = np.arange(len(pack)) if rows is None else rows
    coefficients: dict[int, dict[str, Coefficients]] = {
        bits: {str(kind): _fit(trials) for kind, trials in kinds.items()}
        for bits, kinds in trial_searches(hasher, pack, used_rows, seed).items()
    }
    return Relevance(coefficients, pack.dataset.name, len(used_rows))


def calibration_errors(
    hasher: Hasher, relevance: Relevance, pack: FeaturePack, rows: Rows | None = None, seed: int = 0
) -> dict[int, dict[QueryKind, float]]:
    """The expected calibration error by length of code and kind of query, on items that calibrated nothing."""
    used_rows = np.arange(len(pack)) if rows is None else rows
    return {
        bits: {
            kind: expected_error(logistic(fitted, trials.features), trials.right)
            for kind, trials in kinds.items()
            if (fitted := relevance.coefficients.get(bits, {}).get(kind)) is not None
        }
        for bits, kinds in trial_searches(hasher, pack, used_rows, seed).items()
    }


def expected_error(relevance: Floats, right: NDArray[np.bool_]) -> float:
    """
    Example (four hits said to be right 9 times of 10, of which half are):

        >>> expected_error(np.full(4, 0.9), np.array([True, False, True, False]))
        0.4
    """
    bins = np.minimum((relevance * BINS).astype(np.int64), BINS - 1)
    members = np.bincount(bins, minlength=BINS)
    gaps = np.bincount(bins, relevance, BINS) - np.bincount(bins, right.astype(np.float64), BINS)
    return float(np.abs(gaps).sum() / members.sum())


def trial_searches(hasher: Hasher, pack: FeaturePack, rows: Rows, seed: int) -> dict[int, dict[QueryKind, Trials]]:
    if len(rows) < LEAST_ITEMS or (pack.dataset.texts is None and not pack.dataset.classes):
        raise DataError(
            f"{pack.path}: {len(rows)} of its items are too few to measure how often a hit is right: at least "
            f"{LEAST_ITEMS} that were not trained on are needed, with texts or labels"
        )
    photos = _Photos(hasher, pack, rows)
    questions: dict[QueryKind, list[_Question]] = {"words": [], "picture": []}
    rng = np.random.default_rng(seed)
    for size in FOLDERS:
        number = max(1, round(len(rows) / size))
        each = -(-QUESTIONS // number)
        for folder in np.array_split(rng.permutation(len(rows)), number):
            questions["words"] += photos.ask_names(folder, each, rng)
            questions["words"] += photos.ask_nouns(folder, each, rng)
            questions["words"] += photos.ask_captions(folder, each, rng)
            questions["picture"] += photos.ask_pictures(folder, 3 * each, rng)
    if not questions["words"]:
        raise DataError(f"{pack.path}: its items have neither texts nor labels that say which hits are right")
    return {
        bits: {
            kind: _trials(photos.signs, kind_questions, bits)
            for kind, kind_questions in questions.items()
            if kind_questions
        }
        for bits in (*hasher.config.nested, hasher.config.bits)
    }


class _Photos:
    """Photos, what is known of them, and the questions that can be asked."""

    def __init__(self, hasher: Hasher, pack: FeaturePack, rows: Rows) -> None:
        dataset = pack.dataset
        self.labels = dataset.labels[rows].astype(bool)
        self.outputs = hasher.image_outputs(pack.image[rows])
        self.signs = np.where(self.outputs >= 0, np.float32(1), np.float32(-1))
        captions = [dataset.texts[row] if dataset.texts else [] for row in rows]
        self.captions = np.array([len(texts) for texts in captions])
        self.words = [
            frozenset(_words(" ".join([*texts, *(dataset.classes[c] for c in np.flatnonzero(labels))])))
            for texts, labels in zip(captions, self.labels, strict=True)
        ]
        # The first caption of each, where it names a class.
        self.named = np.zeros(self.labels.shape, bool)
        for i, texts in enumerate(captions):
            for c, name in enumerate(dataset.classes if texts else ()):
                self.named[i, c] = _mentions(texts[0], name)
        firsts = pack.text_offsets[:-1][rows]
        self.asked_captions = np.flatnonzero(self.named.any(axis=1))
        self.caption_outputs = dict(
            zip(
                self.asked_captions.tolist(),
                hasher.text_outputs(pack.text[firsts[self.asked_captions]]),
                strict=True,
            )
        )
        has_encoder = bool(hasher.config.encoder)
        self.nouns = find_nouns(texts for row in captions for texts in row) if has_encoder else []
        names = list(dataset.classes) if has_encoder else []
        questions = [*names, *self.nouns]
        outputs = hasher.query_texts(questions) if questions else np.empty((0, hasher.bits), np.float32)
        self.name_outputs, self.noun_outputs = outputs[: len(names)], outputs[len(names) :]

    def ask_names(self, folder: Rows, number: int, rng: np.random.Generator) -> Iterator[_Question]:
        names = len(self.name_outputs)
        for c in rng.choice(names, min(number, names), replace=False):
            yield _Question(self.name_outputs[c], folder, self.labels[folder, c])

    def ask_nouns(self, folder: Rows, number: int, rng: np.random.Generator) -> Iterator[_Question]:
        known = folder[self.captions[folder] >= CAPTIONS]
        if not len(self.nouns) or len(known) < HITS:
            return
        for place in rng.choice(len(self.nouns), min(number, len(self.nouns)), replace=False):
            (word,) = _words(self.nouns[place])
            right = np.array([word in self.words[i] for i in known])
            yield _Question(self.noun_outputs[place], known, right)

    def ask_captions(self, folder: Rows, number: int, rng: np.random.Generator) -> Iterator[_Question]:
        inside = np.isin(self.asked_captions, folder)
        for part in (self.asked_captions[inside], self.asked_captions[~inside]):
            for i in rng.choice(part, min(-(-number // 2), len(part)), replace=False):
                right = (self.labels[folder] | ~self.named[i]).all(axis=1) | (folder == i)
                yield _Question(self.caption_outputs[int(i)], folder, right)

    def ask_pictures(self, folder: Rows, number: int, rng: np.random.Generator) -> Iterator[_Question]:
        labelled = folder[self.labels[folder].any(axis=1)]
        for i in rng.choice(labelled, min(number, len(labelled)), replace=False):
            others = labelled[labelled != i]
            shared = (self.labels[others] & self.labels[i]).sum(axis=1)
            either = (self.labels[others] | self.labels[i]).sum(axis=1)
            yield _Question(self.outputs[i], others, 2 * shared >= either)


def _trials(signs: NDArray[np.float32], questions: Sequence[_Question], bits: int) -> Trials:
    values: list[Floats] = []
    right: list[NDArray[np.bool_]] = []
    for question in questions:
        query = question.outputs[None, :bits].astype(np.float64)
        shares = (1 - query @ signs[question.rows, :bits].T / max(np.abs(query).sum(), 1e-300)) / 2
        nearest = np.argsort(shares[0], kind="stable")[:HITS]
        values.append(features(query, shares[:, nearest], len(question.rows))[0])
        right.append(question.right[nearest])
    return Trials(np.concatenate(values), np.concatenate(right))


def _fit(trials: Trials) -> Coefficients:
    """Logistic regression by Newton's method."""
    x = np.column_stack([np.ones(len(trials.right)), trials.features])
    weights = np.zeros(x.shape[1])
    for _ in range(50):
        probability = 1 / (1 + np.exp(-np.clip(x @ weights, -60, 60)))
        gradient = x.T @ (probability - trials.right) + SMOOTHING * weights
        curvature = (x * (probability * (1 - probability))[:, None]).T @ x + SMOOTHING * np.eye(x.shape[1])
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    a, b, c, e = (round(float(weight), 6) for weight in weights)
    return a, b, c, e


def find_nouns(captions: Iterator[str]) -> list[str]:
    """The words of some captions that are used as nouns, in order.

    Example:

        >>> find_nouns(iter(["A dog on the beach.", "A boy at the beach with a red dog", "the old dog is asleep"]))
        ['beach']
    """
    counts: Counter[str] = Counter()
    for caption in captions:
        words = _plain(caption)
        for before, word, after in zip(words, words[1:], [*words[2:], "of"], strict=False):
            if before in ARTICLES and AFTER_NOUNS.fullmatch(after):
                counts[word] += 1
    return sorted(word for word, n in counts.items() if n > 1 and len(word) > 2 and not NOT_NOUNS.fullmatch(word))


def _plain(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _words(text: str) -> list[str]:
    """Words in the singular, roughly."""
    return [_singular(word) for word in _plain(text)]


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def _mentions(text: str, name: str) -> bool:
    return f" {' '.join(_words(name))} " in f" {' '.join(_words(text))} "
