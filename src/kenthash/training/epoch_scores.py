"""How good the codes are after an epoch: what a run records of it, and chooses its epoch by.

Under `honest` the validation items are the queries. Shared labels are ranked among them and some training items (see
`Split.validation_database`), own pairs among the validation items alone, as `evaluate` ranks them among the query items
alone. Under `paper` the query set itself is scored.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, pack
from kenthash.data.splits import Split
from kenthash.evaluation import instance_scores, map_of, mean_ap, per_query_ap
from kenthash.model.network import HashNetwork
from kenthash.training.recipe import ChooseBy
from kenthash.training.sources import Outputs, VectorSource, head_outputs
from kenthash.training.supervision import label_fault

Log = Callable[[dict[str, float]], None]

RECALL_K = 10
_MAP, _RECALL = ("i2t", "t2i"), ("recall_i2t", "recall_t2i")
CHOSEN: dict[str, tuple[str, ...]] = {"map": _MAP, "recall": _RECALL, "both": 3 * _MAP + _RECALL}
LOGGED = {"i2t": "map/i2t", "t2i": "map/t2i", "recall_i2t": "recall/i2t", "recall_t2i": "recall/t2i"}


def score_epoch(
    network: HashNetwork, source: VectorSource, split: Split, choose_by: ChooseBy, log: Log
) -> dict[str, Any]:
    """`i2t` and `t2i` are mAP by shared labels, where the labels tell anything; `recall_i2t` and `recall_t2i` are
    recall@10 of own pairs; `nested` has the same of each shorter length of a model of nested codes.

    `score` is the mean of the two mAP, of the two recalls or of both, as `choose_by` says (without labels, of the two
    recalls), and over all lengths. In `both` mAP counts three times: a change of λ_c in KCPH buys about three points of
    recall for one of mAP, and recall among few validation items is the noisier of the two. Items without a caption are
    left out, and items without labels of mAP.
    """
    labels, captioned = source.dataset.labels, source.captions > 0
    labelled = captioned & np.asarray(labels.any(axis=1))
    of_labels = not label_fault(labels, source.captions, split)
    rows = split.validation_database() if split.protocol == "honest" else split.query
    rows = rows[captioned[rows]]
    outputs = head_outputs(network, source, rows)
    log({"balance/image": balance(outputs.image), "balance/text": balance(outputs.text)})
    if split.protocol == "honest":  # the validation items are the first
        queries, known = int(captioned[split.validation].sum()), labelled[rows]
    elif of_labels:
        ranked = split.database[labelled[split.database]]
        database = head_outputs(network, source, ranked)

    def score(bits: int) -> dict[str, float]:
        image, text = _codes(outputs, bits)
        if split.protocol == "honest":
            scores = _recalls(image[:queries], text[:queries])
            if of_labels:
                own, scored = labels[rows[known]], int(known[:queries].sum())
                codes = {"i2t": (image[known], text[known]), "t2i": (text[known], image[known])}
                for direction, sides in codes.items():
                    scores[direction] = mean_ap(per_query_ap(*sides, own, own, exclude_self=True)[:scored])
            return scores
        scores = _recalls(image, text)
        if of_labels:
            image_db, text_db = _codes(database, bits)
            scores["i2t"] = map_of(image, text_db, labels[rows], labels[ranked])
            scores["t2i"] = map_of(text, image_db, labels[rows], labels[ranked])
        return scores

    nested = {str(bits): score(bits) for bits in network.config.nested}
    scores = score(network.bits)
    log({LOGGED[name]: value for name, value in scores.items()})
    names = CHOSEN[choose_by if of_labels else "recall"]
    values = [part[name] for part in (scores, *nested.values()) for name in names]
    return scores | ({"nested": nested} if nested else {}) | {"score": sum(values) / len(values)}


def _codes(outputs: Outputs, bits: int) -> tuple[Codes, Codes]:
    first = outputs.first_bits(bits)
    return pack(first.image), pack(first.text)


def _recalls(image: Codes, text: Codes) -> dict[str, float]:
    own = np.arange(len(image))
    pairs = {"recall_i2t": (image, text), "recall_t2i": (text, image)}
    return {name: instance_scores(*codes, own, own, [RECALL_K]).recall[RECALL_K] for name, codes in pairs.items()}


def balance(outputs: NDArray[np.float32]) -> float:
    """Mean over bits of |share of ones - 1/2| * 2: 0 where every bit is fair, 1 where every bit is constant."""
    return float(np.abs(2 * (outputs >= 0).mean(axis=0) - 1).mean())
