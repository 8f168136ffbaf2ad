"""Ranking by class: a hand-computed case with ties, and a class that only an anisotropic shape can hold."""

import numpy as np
import pytest

from kenthash.analysis.class_models import class_ranking, class_scores
from kenthash.codes import pack


def test_class_ranking_by_hand() -> None:
    scores = np.array([[3.0, 0.0], [2.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    labels = np.array([[1, 0], [1, 0], [0, 0], [1, 0]], np.uint8)
    # First 1/1; then the tie of one relevant and one other: half the time 2/2 and half 2/3; last 3/4.
    assert class_ranking(scores, labels)[0] == pytest.approx((1 + (1 + 2 / 3) / 2 + 3 / 4) / 3)
    assert np.isnan(class_ranking(scores, labels)[1])  # no item carries it


def test_kent_holds_a_class_of_two_opposite_places_and_vmf_cannot() -> None:
    """Class 0: the first two bits agree, whichever they are. Its codes have no mean direction, but an axis."""
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], (600, 16))
    labels = np.stack([signs[:, 0] == signs[:, 1], signs[:, 2] > 0], axis=1).astype(np.uint8)
    codes = pack(signs)
    kent = class_ranking(class_scores("kent", codes[:400], labels[:400], codes[400:]), labels[400:])
    vmf = class_ranking(class_scores("vmf", codes[:400], labels[:400], codes[400:]), labels[400:])
    assert kent[0] > 0.9 and vmf[0] < 0.7
    assert min(kent[1], vmf[1]) > 0.95  # one side of the sphere, which both can hold
