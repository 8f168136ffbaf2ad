"""What a data set has to learn from: items with labels, with captions, with both, and whether the labels tell anything.

Labels and captions may each be there for some of the items, or for none. A method says which of them it cannot do
without (`Method.needs_labels`, `Method.needs_captions`); items without those are left out of its training, and a data
set that leaves it nothing is refused before anything is written.
"""

import numpy as np

from kenthash.data.check import why_labels_teach_nothing
from kenthash.data.splits import Rows, Split
from kenthash.errors import DataError
from kenthash.evaluation.inputs import Labels
from kenthash.methods import METHODS, Method

LEAST = 2  # training items; `make_split` asks for more


def label_fault(labels: Labels, captions: Rows, split: Split) -> str:
    """Why the labels tell nothing, or nothing can be measured by them; "" where they are of use. Items are relevant to
    each other where they share a label; those without captions are not measured."""
    if fault := _training_fault(labels, split.train):
        return fault
    known = (labels > 0) & (captions > 0)[:, None]
    ranked = known[split.validation_database()]  # its first items are the validation items themselves
    if split.protocol == "honest" and not known[split.validation][:, ranked.sum(axis=0) > 1].any():
        return "no validation item shares a label with an item that it is ranked against"
    if not (known[split.query].any(axis=0) & known[split.database].any(axis=0)).any():
        return "no query shares a label with an item of the database"
    return ""


def teaching_labels(labels: Labels, rows: Rows) -> Labels:
    """The labels, or none at all [N, 0] where those of the training `rows` teach nothing: labels that all items share
    would make every pair a similar one."""
    return labels[:, :0] if _training_fault(labels, rows) else labels


def _training_fault(labels: Labels, rows: Rows) -> str:
    return why_labels_teach_nothing(labels[rows], "training items") if labels.any() else "its items have no labels"


def measured(labels: Labels, captions: Rows, split: Split) -> tuple[Rows, Rows]:
    """The query items that figures are of, which have captions, and the database items that shared labels are ranked
    in, which have captions and labels."""
    captioned = captions > 0
    known = captioned & np.asarray(labels.any(axis=1))
    return split.query[captioned[split.query]], split.database[known[split.database]]


def learnable(method: type[Method], labels: Labels, captions: Rows, rows: Rows) -> Rows:
    """Those of `rows` that the method can learn from. `captions` is the number of captions of every item."""
    labelled, captioned = labels[rows].any(axis=1), captions[rows] > 0
    usable = labelled | captioned
    if method.needs_labels:
        usable &= labelled
    if method.needs_captions:
        usable &= captioned
    return rows[usable]


def check_supervision(name: str, method: type[Method], labels: Labels, captions: Rows, split: Split) -> None:
    """Refuse the data set `name` where the method has nothing to learn from in it."""
    parts = {"training": split.train, "validation": split.validation, "query": split.query, "database": split.database}
    for part, rows in parts.items():
        if len(rows) and not captions[rows].any():
            raise DataError(f"{name}: none of the {len(rows)} {part} items has a caption: add texts to some of them")
    fault = label_fault(labels, captions, split)
    if method.needs_labels and fault:
        others = ", ".join(key for key, other in METHODS.items() if not other.needs_labels)
        advice = f"{method.title} needs labels that some items share and others do not"
        raise DataError(f"{name}: {fault}: {advice}" + (f"; captions alone do for {others}" if others else ""))
    number = len(learnable(method, teaching_labels(labels, split.train), captions, split.train))
    if number < LEAST:
        needed = [what for what, is_needed in (("labels", method.needs_labels), ("a caption", True)) if is_needed]
        raise DataError(
            f"{name}: only {number} of the {len(split.train)} training items has {' and '.join(needed)}: add more"
        )


def training_notes(method: type[Method], labels: Labels, captions: Rows, rows: Rows) -> list[str]:
    """One line for each thing about the training `rows` that the method does not learn from, or not fully."""
    unlabelled, uncaptioned = ~labels[rows].any(axis=1), captions[rows] == 0
    lines = []
    if labels.any() and (fault := _training_fault(labels, rows)):
        lines.append(f"labels are not used: {fault}")
    elif labels.any() and unlabelled.any():
        use = "left out of training" if method.needs_labels else "learned from by their captions alone"
        lines.append(f"{unlabelled.sum():,} of {len(rows):,} training items have no label: {use}")
    if uncaptioned.any():
        use = "left out of training" if method.needs_captions else "learned from by their labels alone"
        lines.append(f"{uncaptioned.sum():,} of {len(rows):,} training items have no caption: {use}")
    return lines
