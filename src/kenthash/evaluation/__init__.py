"""Exact, tie-aware evaluation of binary codes: mAP and its kin, curves, intervals, protocols.

Scores of real-valued outputs are apart, in `kenthash.evaluation.real_valued`.
"""

from kenthash.evaluation.evaluate import evaluate_codes, map_of, per_query_ap
from kenthash.evaluation.report import Evaluation
from kenthash.evaluation.significance import PairedTest, bootstrap_interval, paired_test

__all__ = [
    "Evaluation",
    "PairedTest",
    "bootstrap_interval",
    "evaluate_codes",
    "map_of",
    "paired_test",
    "per_query_ap",
]
