"""`kenthash evaluate --codes DIR`: codes of any method, made by any program, scored by the evaluator of our own runs.

A submission is a folder with three files:

    submission.yaml    what the codes are: see `Submission`
    image.npy          uint8 [N, bits / 8], packed: the code of each item's picture, in the order of the data's ids
    text.npy           uint8 [N, bits / 8]: the code of each item's first text

They hold the codes of all N items of the data, queries and database alike; the evaluator splits them by the seed. Bits
are packed from the lowest of each byte on: `numpy.packbits(outputs >= 0, axis=1, bitorder="little")`.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from kenthash import __version__
from kenthash.codes import Codes
from kenthash.data.check import why_labels_teach_nothing
from kenthash.data.dataset import Dataset
from kenthash.data.splits import Protocol, Rows, make_split
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.evaluation import DIRECTIONS, Evaluation, evaluate_codes, instance_ndcg, instance_scores, render_table
from kenthash.evaluation.inputs import Labels, Ties, check_codes
from kenthash.files import atomic_write, load_array, write_json
from kenthash.training.evaluate import NDCG_K, TOWERS, left_out_lines, named_scores
from kenthash.training.recipe import SplitSizes, read_recipe
from kenthash.training.supervision import measured
from kenthash.validation import checked

DESCRIPTION = "submission.yaml"


@dataclass(frozen=True)
class SubmissionEvaluation:
    metrics: dict[str, Any]  # as written to metrics.json
    evaluations: dict[str, Evaluation]  # by shared labels, of each direction; none where labels tell nothing

    def text(self) -> str:
        own = " · ".join(
            f"{DIRECTIONS[direction]} {100 * self.metrics[direction]['instance_recall']['10']:.1f} %"
            for direction in ("i2t", "t2i")
        )
        m = self.metrics
        return "\n".join(
            [
                *([render_table(self.evaluations)] if self.evaluations else []),
                f"own pairs, recall@10 among the query items: {own}",
                f"{m['method']} · seed {m['seed']} · split {m['split']} · protocol {m['protocol']}, as its authors say",
                *m["left_out"],
            ]
        )


@dataclass(frozen=True)
class Submission:
    """What `submission.yaml` says. `name` and `protocol` have to be given."""

    name: Annotated[str, Field(min_length=1, max_length=60)]  # of the method, as tables print it
    protocol: Protocol  # honest: nothing was chosen by figures of the query items; paper: something was
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0  # of the split, and of the training
    citation: str = ""
    url: str = ""  # where the code is
    recipe: dict[str, Any] = field(default_factory=dict)  # how the codes were learned: any names and values
    split: SplitSizes = field(default_factory=SplitSizes)


def read_submission(folder: Path) -> Submission:
    values = read_recipe(folder / DESCRIPTION)
    if missing := [name for name in ("name", "protocol") if name not in values]:
        raise DataError(f"{folder / DESCRIPTION}: does not say its {missing[0]}: see docs/evaluation.md")
    try:
        return checked(Submission, values)
    except UsageError as error:
        raise DataError(f"{folder / DESCRIPTION}: {error}") from error


def evaluate_submission(folder: Path, dataset: Dataset, ties: Ties = "expected") -> SubmissionEvaluation:
    """Score the codes in `folder` and write `metrics.json` and `per_query_ap.npz` there, as for a run. Where the labels
    of the data tell nothing, or there are none, figures are those of own pairs.

    Example, of 40 items whose codes are their labels:

        >>> from tempfile import mkdtemp
        >>> labels = np.eye(8, dtype=np.uint8)[np.arange(40) % 8]
        >>> dataset, folder = Dataset("eight", [str(i) for i in range(40)], labels, list("abcdefgh")), Path(mkdtemp())
        >>> for part in ("image", "text"):
        ...     np.save(folder / f"{part}.npy", np.packbits(labels, axis=1, bitorder="little"))
        >>> _ = (folder / "submission.yaml").write_text("name: Labels\\nprotocol: honest\\n")
        >>> evaluate_submission(folder, dataset).metrics["i2t"]["map"]
        1.0
    """
    submission = read_submission(folder)
    split = make_split(len(dataset), submission.seed, submission.protocol, **asdict(submission.split))
    codes = {tower: _codes(folder / f"{tower}.npy", len(dataset)) for tower in ("image", "text")}
    if codes["image"].shape != codes["text"].shape:
        raise DataError(f"{folder}: codes of pictures have another length than those of texts: give both the same")
    labels, captions = dataset.labels, _captions(dataset)
    rows, ranked = measured(labels, captions, split)
    fault = _label_fault(labels, rows, ranked)
    evaluations: dict[str, Evaluation] = {}
    metrics: dict[str, Any] = {}
    own = np.arange(len(rows))
    for direction, (query, database) in TOWERS.items():
        figures: dict[str, Any] = {}
        if not fault:
            sides = codes[query][rows], codes[database][ranked]
            evaluations[direction] = evaluate_codes(*sides, labels[rows], labels[ranked], ties=ties)
            figures = evaluations[direction].to_json()
        if query != database:
            pairs = codes[query][rows], codes[database][rows], own, own
            figures |= named_scores(instance_scores(*pairs, ties=ties))
            figures |= {"instance_queries": len(rows)}
            if not fault:
                ndcg = instance_ndcg(*pairs, labels[rows], labels[rows], NDCG_K)
                figures |= {"instance_ndcg": {str(NDCG_K): round(ndcg, 6)}}
        if figures:
            metrics[direction] = figures
    metrics |= {
        "method": submission.name,
        "bits": 8 * codes["image"].shape[1],
        "seed": submission.seed,
        "ties": ties,
        "protocol": submission.protocol,
        "data": dataset.name,
        "data_digest": dataset.digest(),
        "split": split.digest(),
        "left_out": left_out_lines(fault, labels, captions, split),
        "code_version": __version__,
    }
    with atomic_write(folder / "per_query_ap.npz") as stream:
        ap: dict[str, Any] = {direction: evaluation.per_query_ap for direction, evaluation in evaluations.items()}
        np.savez(stream, **ap)
    write_json(folder / "metrics.json", metrics)
    return SubmissionEvaluation(metrics, evaluations)


def _label_fault(labels: Labels, queries: Rows, ranked: Rows) -> str:
    """Why nothing can be measured by shared labels; "" where it can. How the codes were learned has no part in it."""
    if not labels.any():
        return "its items have no labels"
    if fault := why_labels_teach_nothing(labels):
        return fault
    shared = labels[queries].any(axis=0) & labels[ranked].any(axis=0)
    return "" if shared.any() else "no query shares a label with an item of the database"


def _captions(dataset: Dataset) -> Rows:
    """The number of each item's captions; one of each where the data, a pack without its texts, does not say."""
    if dataset.texts is None:
        return np.ones(len(dataset), np.int64)
    texts = dataset.texts if dataset.pictures is None else dataset.captions()  # a pack has a vector of each text
    return np.array([len(own) for own in texts], np.int64)


def _codes(path: Path, items: int) -> Codes:
    codes = load_array(path)
    try:
        check_codes("submitted", codes)
    except KenthashError as error:
        raise DataError(f"{path}: {error}") from error
    if len(codes) != items:
        raise DataError(
            f"{path}: {len(codes):,} codes, but the data has {items:,} items: one code per item, in its order"
        )
    return np.asarray(codes)
