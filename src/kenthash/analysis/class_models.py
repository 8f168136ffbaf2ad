"""What the codes of a class look like: a distribution fitted to them, and how well it finds the class again.

Codes rank items by Hamming distance to another item. A class has no code, but it has a distribution over codes, and
its log-density ranks the items by how much they look like the class: search by tag, or tags from codes, in 8 bytes per
item. Here the shape of the distribution is all that matters, so that this is where Kent, vMF and points are compared.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from kenthash.codes import Codes, unpack
from kenthash.evaluation import Labels
from kenthash.evaluation.measures import Scores, average_precision
from kenthash.proxies.kinds import Kind, make_proxies

STEPS, BATCH, RATE = 600, 1024, 0.05
POINT_SCALE = 10.0  # a cosine has no scale of its own: points get the κ that the others start from
LARGE = 20.0  # of the loss, so that Adam's ε never matters


def class_scores(kind: Kind, codes: Codes, labels: Labels, others: Codes, seed: int = 0) -> Scores:
    """Log-odds [M, C] that `others` carry each class, by a model of `kind` fitted to `codes` [N, bits/8]:

        P(c | z) = σ(s_c(z) + b_c),    z = the code's signs, scaled to unit length,

    s_c the proxy score of `proxies/`, b_c the class's prior; fitted by maximum likelihood, every class on its own.
    """
    torch.manual_seed(seed)
    z, target = _unit(codes), torch.from_numpy(labels.astype(np.float32))
    proxies = make_proxies(kind, labels.shape[1], z.shape[1], None, "thin")
    prior = nn.Parameter(torch.zeros(labels.shape[1]))
    scale = POINT_SCALE if kind == "point" else 1.0
    optimizer = torch.optim.Adam([*proxies.parameters(), prior], RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        rows = torch.randint(0, len(z), (min(BATCH, len(z)),))
        logits = scale * proxies.scores(z[rows]) + prior
        optimizer.zero_grad()
        torch.autograd.backward(LARGE * binary_cross_entropy_with_logits(logits, target[rows]))
        optimizer.step()
        schedule.step()
    with torch.inference_mode():
        return np.asarray((scale * proxies.scores(_unit(others)) + prior).double().numpy())


def class_ranking(scores: Scores, labels: Labels) -> Scores:
    """Average precision of every class [C] when all items rank by its column of `scores` [M, C]; equal scores tie, and
    every order of theirs is equally likely. NaN for a class that no item carries."""
    return np.array([_ranked(scores[:, c], labels[:, c] != 0) for c in range(scores.shape[1])])


def _ranked(scores: Scores, relevant: NDArray[np.bool_]) -> float:
    _, level = np.unique(-scores, return_inverse=True)
    total = np.bincount(level)
    hits = np.bincount(level, relevant).astype(np.int64)
    return float(average_precision(hits[None], total[None], "expected")[0])


def _unit(codes: Codes) -> torch.Tensor:
    return normalize(torch.from_numpy(unpack(codes).astype(np.float32)))
