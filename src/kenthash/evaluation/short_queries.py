"""Short queries: the names of classes in prompts, as people type them, and how many of the first pictures are right.

Captions say much, and a code of a caption finds its photo by all of it. "dog" or "a photo of a dog" says one word, and
the first ten pictures are what anybody looks at: precision@10, for each class and each prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, pack
from kenthash.data.short_texts import TRAINED, UNSEEN, in_prompt
from kenthash.errors import UsageError
from kenthash.evaluation.inputs import Labels, check_cutoffs
from kenthash.evaluation.instances import CodesOrReals, distances_to
from kenthash.evaluation.measures import Scores

K = 10  # also the fewest pictures of a class that is asked for: it could not score 1 otherwise
TEMPLATES = (*TRAINED[:2], "a photo of {a}", *UNSEEN)  # in which the name of each class is asked for
WEAKEST = 5  # classes that are printed


@dataclass(frozen=True)
class ShortQueryScores:
    """Precision@10 by template and class, of codes and of real-valued queries, expected over the orders of ties."""

    classes: list[str]
    left_out: list[str]  # classes of fewer than ten pictures
    codes: Scores  # [templates, classes]
    real: Scores

    def to_json(self) -> dict[str, Any]:
        by_template = zip(TEMPLATES, self.codes.mean(axis=1), self.real.mean(axis=1), strict=True)
        return {
            "k": K,
            "precision": round(float(self.codes.mean()), 6),
            "real_valued_query": round(float(self.real.mean()), 6),
            "templates": {
                in_prompt(template, "NAME"): {
                    "precision": round(float(codes), 6),
                    "real_valued_query": round(float(real), 6),
                    "trained_on": template in TRAINED,
                }
                for template, codes, real in by_template
            },
            "per_class": dict(zip(self.classes, self.codes.mean(axis=0).round(6).tolist(), strict=True)),
            "left_out": self.left_out,
        }


def class_texts(classes: Sequence[str]) -> list[str]:
    """Every class in every template, template by template."""
    return [in_prompt(template, name) for template in TEMPLATES for name in classes]


def score_short_queries(
    outputs: NDArray[np.float32], database: Codes, labels: Labels, classes: Sequence[str]
) -> ShortQueryScores | None:
    """Score the real-valued `outputs` of `class_texts(classes)`, and their signs, against codes of pictures with
    `labels` [N, C]. None where no class has ten pictures."""
    number = labels.astype(np.int64).sum(axis=0)
    is_queried = number >= K
    if not is_queried.any():
        return None
    relevant = np.tile((labels[:, is_queried] > 0).T, (len(TEMPLATES), 1))
    queries = outputs.reshape(len(TEMPLATES), len(classes), -1)[:, is_queried].reshape(len(relevant), -1)
    shape = (len(TEMPLATES), int(is_queried.sum()))
    return ShortQueryScores(
        classes=[name for name, queried in zip(classes, is_queried, strict=True) if queried],
        left_out=[name for name, queried in zip(classes, is_queried, strict=True) if not queried],
        codes=precision_at(pack(queries), database, relevant, K).reshape(shape),
        real=precision_at(queries, database, relevant, K).reshape(shape),
    )


def precision_at(queries: CodesOrReals, database: CodesOrReals, relevant: NDArray[np.bool_], k: int) -> Scores:
    """The share of relevant ones [Q] among the first k rows of the database, whose `relevant` is [Q, N]. Of the rows at
    the distance of the k-th, every order is equally likely.

    The first is at distance 0, and one of the two at distance 8 is second:

        >>> query, database = np.uint8([[255]]), np.uint8([[0], [255], [0]])
        >>> precision_at(query, database, np.array([[True, True, False]]), 2)
        array([0.75])
    """
    check_cutoffs([k])
    if relevant.shape != (len(queries), len(database)) or k > len(database):
        raise UsageError(f"precision@{k} of {len(queries)} queries in {len(database)} rows: relevant {relevant.shape}")
    scores, row = np.empty(len(queries)), 0
    for chunk in distances_to(queries, database):
        for distances in chunk:
            last = np.partition(distances, k - 1)[k - 1]
            nearer, tied = distances < last, distances == last
            hits = relevant[row][nearer].sum() + (k - nearer.sum()) * relevant[row][tied].mean()
            scores[row] = hits / k
            row += 1
    return scores


def render_short_queries(value: dict[str, Any]) -> list[str]:
    """Lines of a table, from what `ShortQueryScores.to_json` gave."""
    head = f"{'short queries':<26}{'P@10':>8}{'real query P@10':>18}"
    lines = [head, "─" * len(head)]
    for template, scores in value["templates"].items():
        note = "" if scores["trained_on"] else "  not trained on"
        lines.append(f"{template:<26}{scores['precision']:>8.4f}{scores['real_valued_query']:>18.4f}{note}")
    lines.append(f"share of the first {value['k']} pictures, mean over {len(value['per_class'])} class names")
    weakest = sorted(value["per_class"].items(), key=lambda entry: entry[1])[:WEAKEST]
    lines.append("weakest: " + ", ".join(f"{name} {score:.2f}" for name, score in weakest))
    return [*lines, ""]
