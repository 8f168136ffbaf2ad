"""Whether a data set can be learned from and searched: counts, co-occurrence, and what to do about what is wrong.

Co-occurrence is measured as in the paper (appendix on the Chaos Index): the average co-occurring labels of a class c,

    ACL(c) = 1/|N_c| * sum over i in N_c of (|l_i|_1 - 1),

with N_c the items of class c and l_i the multi-hot labels of item i. Of COCO's classes the complex ones have about
4.1, the plain ones about 1.1.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.data.dataset import DataProblem, Dataset
from kenthash.data.decoding import DecoderPool
from kenthash.data.pictures import BadPicture, Square
from kenthash.data.report import ClassCount, DataReport, PairCount
from kenthash.data.splits import make_split
from kenthash.errors import DataError
from kenthash.progress import cores, track

MAX_PAIRS = 20
BLOCK = 256  # pictures handed to the threads at once, so that an interrupt takes effect soon
SQUARE = Square(224)  # what encoders ask for: JPEG is then decoded at a fraction of its size, yet read to its end


def check_dataset(
    dataset: Dataset, pictures: bool = True, in_shards: Iterable[Path | bytes] | None = None
) -> DataReport:
    """Check a data set as a whole; `pictures=False` does not open its pictures, which takes most of the time.
    `in_shards` are the pictures of a data set that does not name files."""
    sources = dataset.pictures if in_shards is None else in_shards
    problems = [
        *dataset.problems,
        *_id_problems(dataset),
        *_label_problems(dataset),
        *_class_problems(dataset.classes),
        *_text_problems(dataset, sources is not None),
        *(_picture_problems(dataset.ids, sources) if pictures and sources is not None else ()),
        *_size_problems(dataset),
    ]
    counts, sizes = np.unique(dataset.labels.sum(axis=1, dtype=np.int64), return_counts=True)
    return DataReport(
        name=dataset.name,
        items=len(dataset),
        pictures=None if sources is None else len(dataset),
        texts=None if dataset.texts is None else sum(map(len, dataset.captions())),
        classes=_class_counts(dataset),
        labels_per_item=dict(zip(counts.tolist(), sizes.tolist(), strict=True)),
        pairs=_pair_counts(dataset),
        licence=dataset.licence,
        notes=[*dataset.notes, *_notes(dataset)],
        problems=problems,
        pictures_checked=pictures,
    )


def feature_problems(rows: dict[str, list[int]]) -> list[DataProblem]:
    """What is wrong with the vectors of a pack: for each of its files, the rows that hold NaN or infinity."""
    return [
        DataProblem(
            "error",
            f"rows of {part} with NaN or infinity: {len(bad):,}; they would spread to whole batches",
            "encode the data again; if that does not help, check the pictures or texts of these rows",
            [f"row {row}" for row in bad],
        )
        for part, bad in rows.items()
        if bad
    ]


def average_cooccurring_labels(labels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """ACL(c) = 1/|N_c| Σ_{i∈N_c} (|l_i|₁ − 1), the paper's measure of how complex a class is [C].

    N_c are the items that carry c. NaN for a class that no item carries.
    """
    carried = (labels != 0).astype(np.float64)
    items = carried.sum(axis=0)
    return np.where(items > 0, carried.T @ (carried.sum(axis=1) - 1) / np.maximum(items, 1), np.nan)


def _class_counts(dataset: Dataset) -> list[ClassCount]:
    items = dataset.labels.sum(axis=0, dtype=np.int64).tolist()
    acl = np.nan_to_num(average_cooccurring_labels(dataset.labels)).tolist()
    counts = [ClassCount(*values) for values in zip(dataset.classes, items, acl, strict=True)]
    return sorted(counts, key=lambda counted: (-counted.items, counted.name))


def _pair_counts(dataset: Dataset) -> list[PairCount]:
    exact = dataset.labels.astype(np.float32)  # a float product is fast, and exact up to 16 million items
    together = np.rint(exact.T @ exact).astype(np.int64)
    first, second = np.triu_indices(len(dataset.classes), k=1)
    items = together[first, second]
    pairs = []
    for place in np.argsort(-items, kind="stable")[:MAX_PAIRS].tolist():
        a, b = int(first[place]), int(second[place])
        if both := int(items[place]):
            share = both / int(min(together[a, a], together[b, b]))
            pairs.append(PairCount(dataset.classes[a], dataset.classes[b], both, share))
    return pairs


def _notes(dataset: Dataset) -> Iterator[str]:
    if not dataset.labels.any():
        yield "no item has a label: captions alone are learned from, and figures by shared labels are left out"


def _id_problems(dataset: Dataset) -> Iterator[DataProblem]:
    if repeated := [item for item, times in Counter(dataset.ids).items() if times > 1]:
        yield DataProblem(
            "error",
            f"ids that occur more than once: {len(repeated):,}; a search result would not say which item it is",
            'write one row per item; several texts of a picture go into one row, as "texts": ["...", "..."]',
            repeated,
        )


def _class_problems(classes: list[str]) -> Iterator[DataProblem]:
    alike: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        alike[" ".join(name.casefold().split())].append(name)
    if groups := [", ".join(map(repr, names)) for names in alike.values() if len(names) > 1]:
        yield DataProblem(
            "warning",
            f"class names that differ only in case or spaces: {len(groups):,}; each is learned as a class of its own",
            "spell the labels of a class alike",
            groups,
        )
    if several := [name for name in classes if any(mark in name for mark in ",;|")]:
        yield DataProblem(
            "warning",
            f"class names with a comma, semicolon or bar: {len(several):,}; perhaps several labels in one string",
            'write several labels as several strings, ["dog", "people"]; a name that is meant so can stay',
            several,
        )


def why_labels_teach_nothing(labels: NDArray[np.uint8], items: str = "items") -> str:
    """Why nothing can be learned from the labels of these `items`; "" where some share a label and others do not."""
    known = labels[labels.any(axis=1)]
    if not len(known):
        return f"none of the {len(labels):,} {items} has a label"
    if not (known.sum(axis=0, dtype=np.int64) > 1).any():
        return f"no two of the {len(labels):,} {items} share a label"
    if (known == known[0]).all():
        return f"all {len(known):,} {items} with labels have the same ones"
    return ""


def _label_problems(dataset: Dataset) -> Iterator[DataProblem]:
    if not dataset.labels.any():
        return  # a set of captions, which need no labels
    if fault := why_labels_teach_nothing(dataset.labels):
        yield DataProblem(
            "warning",
            f"{fault}, so nothing can be learned from the labels",
            "give items of one kind the same label, and others another; captions are learned from without labels",
        )
    unlabelled = np.flatnonzero(~dataset.labels.any(axis=1)).tolist()
    if unlabelled:
        yield DataProblem(
            "warning",
            f"items without a label: {len(unlabelled):,}; figures by shared labels leave them out, and they teach by "
            "their captions alone",
            "label them if their labels are known; searching needs no labels",
            [dataset.ids[row] for row in unlabelled],
        )
    occurs = dataset.labels.max(axis=0).tolist()
    if unused := [name for name, once in zip(dataset.classes, occurs, strict=True) if not once]:
        yield DataProblem(
            "warning",
            f"classes that never occur: {len(unused):,}; each still has a proxy in training",
            "remove them from the list of classes, unless items with them will be added",
            unused,
        )


def _text_problems(dataset: Dataset, has_pictures: bool) -> Iterator[DataProblem]:
    if dataset.texts is None:
        if has_pictures:  # a feature pack has its texts as vectors
            yield DataProblem("warning", "no item has a text, so pictures cannot be matched with words", 'add "text"')
        return
    captions = dataset.captions()
    if bare := [item for item, texts in zip(dataset.ids, captions, strict=True) if not texts]:
        yield DataProblem(
            "warning",
            f"items without a text: {len(bare):,}; they teach by their labels alone, and no figure has them",
            "write a text where there is one to write; searching needs none",
            bare,
        )
    wordless = [
        item
        for item, texts in zip(dataset.ids, captions, strict=True)
        if not all(any(map(str.isalnum, text)) for text in texts)
    ]
    if wordless:
        yield DataProblem(
            "warning",
            f"items with a text that has no words: {len(wordless):,}",
            "write a text, or remove this one; other texts of the item can stay",
            wordless,
        )


def _picture_problems(ids: list[str], sources: Iterable[Path | bytes]) -> Iterator[DataProblem]:
    bad: list[str] = []
    same: dict[bytes, list[str]] = defaultdict(list)
    for item, result in zip(ids, track(_digests(sources), "pictures", len(ids), "pictures"), strict=True):
        if isinstance(result, str):
            bad.append(f"{item}: {result}")
        elif item not in same[result]:
            same[result].append(item)
    if bad:
        yield DataProblem(
            "error" if 2 * len(bad) > len(ids) else "warning",
            f"pictures that cannot be read: {len(bad):,} of {len(ids):,}",
            "replace these files or remove their rows; `kenthash encode` skips them",
            bad,
        )
    if copies := [" = ".join(items) for items in same.values() if len(items) > 1]:
        yield DataProblem(
            "warning",
            f"pictures that occur more than once, byte for byte: {len(copies):,}; a query may find its own copy",
            "keep one of each, with the labels of all",
            copies,
        )


def _digests(sources: Iterable[Path | bytes]) -> Iterator[bytes | str]:
    iterator = iter(sources)
    with ThreadPoolExecutor(cores()) as pool, DecoderPool() as decoders:
        while block := list(islice(iterator, BLOCK)):
            yield from pool.map(partial(_digest, decoders), block)


def _digest(decoders: DecoderPool, source: Path | bytes) -> bytes | str:
    """The digest of the file of a readable picture, or why it cannot be read."""
    try:
        decoders.square(source, SQUARE)
        if isinstance(source, bytes):
            return hashlib.sha256(source).digest()
        with source.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except BadPicture as error:
        return error.reason
    except OSError as error:
        return str(error.strerror)


def _size_problems(dataset: Dataset) -> Iterator[DataProblem]:
    try:
        make_split(len(dataset), seed=0)
    except DataError:
        yield DataProblem(
            "warning",
            f"{len(dataset)} items are too few to be split into queries, training and validation items",
            "add items: 20 can be split, a few thousand can be learned from",
        )
