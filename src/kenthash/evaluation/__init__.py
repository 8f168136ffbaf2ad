"""Exact, tie-aware evaluation of binary codes: mAP and related measures, curves, intervals, protocols.

Two modules are imported by their own names, because they bring a large library: `kenthash.evaluation.real_valued`
(PyTorch), which scores real-valued outputs, and `kenthash.evaluation.figures` (matplotlib).
"""

from kenthash.evaluation.evaluate import evaluate_codes, map_of, per_query_ap
from kenthash.evaluation.inputs import Labels, Ties
from kenthash.evaluation.instances import InstanceScores, instance_ndcg, instance_scores
from kenthash.evaluation.measures import BitUse, Group, Scores, bit_use, mean_ap
from kenthash.evaluation.protocols import EpochScore, PaperNumber, honest_epoch, paper_number
from kenthash.evaluation.report import DIRECTIONS, Evaluation, render_table
from kenthash.evaluation.significance import (
    PairedTest,
    SeedTest,
    bootstrap_interval,
    holm,
    paired_test,
    seed_test,
)

__all__ = [
    "DIRECTIONS",
    "BitUse",
    "EpochScore",
    "Evaluation",
    "Group",
    "InstanceScores",
    "Labels",
    "PairedTest",
    "PaperNumber",
    "Scores",
    "SeedTest",
    "Ties",
    "bit_use",
    "bootstrap_interval",
    "evaluate_codes",
    "holm",
    "honest_epoch",
    "instance_ndcg",
    "instance_scores",
    "map_of",
    "mean_ap",
    "paired_test",
    "paper_number",
    "per_query_ap",
    "render_table",
    "seed_test",
]
