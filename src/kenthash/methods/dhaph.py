"""DHaPH: deep hierarchy-aware proxy hashing with self-paced learning.

    L = C(x, x) + C(t, t) + C(x, t) + α (H(x) + H(t) + 2 H(proxies))

C is a contrast whose hard pairs come in step by step. With s the cosine, τ = 0.3 and P the items that share a label,

    −log [ Σ_P w⁺ e^{s/τ} / (Σ_P w⁺ e^{s/τ} + Σ_N w⁻ e^{s/τ}) ],   w⁺ = e^{−(1+s)δ/4},  w⁻ = e^{−(1−s)δ}

where the weights take no gradient and δ grows from 0 to 1 over the first third of the epochs.

H is the hierarchy of HIER (Kim et al., CVPR 2023): 500 proxies in the Poincaré ball stand for classes and groups of
classes that nobody has named. Of items i, j that are each other's neighbours and an item k that is not, the proxy that
lies nearest to both of the pair (drawn by Gumbel softmax) should be nearer to i and j, and farther from k, than the one
nearest to all three, by a margin. Proxies have such a hierarchy among themselves.

Losses and values after the authors' code. Two of its faults are mended: it detaches the outputs before they enter the
ball, so that the hierarchy teaches the heads nothing (`detached` brings that back), and an item can be drawn as its own
k. Changed: 5 triplets for each item and one for each proxy instead of 50, which estimate the same means; the
hierarchy's rate, whose 1e-5 moves nothing in 20 epochs.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, normalize

from kenthash.methods.base import FIELD_OPTIMIZER, Batch, Method, Shapes
from kenthash.methods.pairs import shares_label

Triplets = tuple[Tensor, Tensor, Tensor]  # positions of i, j and k, each [T]

CURVATURE = 0.1  # c: the ball has the radius 1/√c
RADIUS = 2.3  # of what is mapped into the ball, against vanishing gradients near its edge
TINY = 1e-10


@dataclass(frozen=True)
class Settings:
    alpha: float = 1.0  # weight of the hierarchy
    temperature: float = 0.3  # τ of the contrast
    pace: int = 7  # epochs until the hard pairs have their full weight: a third of the recipe's
    proxies: int = 500
    neighbours: int = 15
    triplets: int = 5  # for each item; 50 in the authors' code
    margin: float = 0.1
    choice: float = 0.1  # temperature at which a common ancestor is drawn
    detached: bool = False  # the hierarchy teaches the heads nothing, as in the authors' code


class Dhaph(Method):
    key = "dhaph"
    title = "DHaPH"
    citation = "Huo et al., Deep Hierarchy-aware Proxy Hashing with Self-paced Learning, TKDE 2024"
    fidelity = "code"
    settings_class = Settings
    recipe: ClassVar[dict[str, Any]] = {
        "optimizer": FIELD_OPTIMIZER,
        "proxy_optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01, "warmup": 0.0, "decay": "constant"},
    }

    def __init__(self, shapes: Shapes, settings: Settings) -> None:
        super().__init__(shapes, settings)
        self.project = nn.Linear(shapes.bits, shapes.bits)
        points = torch.randn(settings.proxies, shapes.bits) * (0.9 * RADIUS / shapes.bits**0.5)
        self.nodes = nn.Parameter(points)  # of the hierarchy; no class has one of its own
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        x, t, s = batch.x, batch.t, self.settings
        similar = shares_label(batch.labels, batch.labels)
        epoch = 1 + self.seen // self.shapes.items
        share = (epoch / max(s.pace, 1)).clamp(max=1)
        self.seen += len(batch.items)
        pairs = ((x, x), (t, t), (x, t))
        contrast = torch.stack([paced_contrast(a, b, similar, share, s.temperature) for a, b in pairs]).sum()
        return {"contrast": contrast, "hierarchy": self._hierarchy(x, t, similar)}

    def _hierarchy(self, x: Tensor, t: Tensor, similar: Tensor) -> Tensor:
        s = self.settings
        nodes = to_ball(self.nodes)
        within = ball_distance(nodes, nodes)
        total = 2 * self._levels(within, neighbour_triplets(within.detach(), None, s.neighbours, 1))
        for outputs in (x, t):
            h = outputs.detach() if s.detached else outputs
            points = to_ball(self.project(layer_norm(h, h.shape[1:])))
            near = ball_distance(points, points).detach()
            triplets = neighbour_triplets(near, similar, s.neighbours, s.triplets)
            total = total + self._levels(ball_distance(points, nodes), triplets)
        return total

    def _levels(self, distance: Tensor, triplets: Triplets) -> Tensor:
        """The mean loss of the triplets by their distances [N, M] to the nodes, with ancestors drawn anew."""
        number = len(triplets[0])
        noise = gumbel_noise(distance.new_empty(2, number, distance.shape[1]))
        margin, choice = self.settings.margin, self.settings.choice
        with torch.no_grad():
            losses = hierarchy_hinge(distance, triplets, noise, margin, choice)
        # Most triplets have no loss, and so no gradient: they need none of the large tables that a gradient takes.
        rows = losses.nonzero().flatten()
        i, j, k = triplets
        part = (i[rows], j[rows], k[rows])
        return hierarchy_hinge(distance, part, noise[:, rows], margin, choice).sum() / max(number, 1)

    def weights(self) -> dict[str, float]:
        return {"contrast": 1.0, "hierarchy": self.settings.alpha}


def paced_contrast(a: Tensor, b: Tensor, similar: Tensor, share: Tensor | float, temperature: float) -> Tensor:
    """The self-paced contrast C of `a` [N, K] against `b` [M, K] at pace δ = `share`; rows without a similar item are
    left out."""
    cosine = normalize(a) @ normalize(b).T
    fixed = cosine.detach()
    logits = cosine / temperature - torch.where(similar, (1 + fixed) / 4, 1 - fixed) * share
    rows = similar.any(1)
    if not rows.any():
        return cosine.sum() * 0
    logits, similar = logits[rows], similar[rows]
    return (logits.logsumexp(1) - logits.masked_fill(~similar, -torch.inf).logsumexp(1)).mean()


def to_ball(u: Tensor) -> Tensor:
    """Vectors [N, K], cut to `RADIUS`, by the exponential map at 0 into the Poincaré ball of curvature −c:

        tanh(√c ‖u‖) u / (√c ‖u‖)

    The gradient of a point p is scaled by (1 − c‖p‖²)²/4, the inverse of the ball's metric.
    """
    root = CURVATURE**0.5
    length = u.norm(dim=-1, keepdim=True).clamp(min=1e-5)
    u, length = u * (RADIUS / length).clamp(max=1), length.clamp(max=RADIUS)
    points = (root * length).tanh() * u / (root * length)
    scale = (1 - CURVATURE * points.detach().square().sum(-1, keepdim=True)).square() / 4
    scaled: Tensor = points * scale + (points * (1 - scale)).detach()
    return scaled


def ball_distance(a: Tensor, b: Tensor) -> Tensor:
    """[N, M] geodesic distances of points of the ball:

        (1/√c) arcosh(1 + 2δ),  δ = c‖a − b‖² / ((1 − c‖a‖²)(1 − c‖b‖²))

    which is (2/√c) artanh(√c ‖−a ⊕ b‖) without the N × M × K table of Möbius sums.
    """
    squares = (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T).clamp(min=0)
    inside = (1 - CURVATURE * a.square().sum(1))[:, None] * (1 - CURVATURE * b.square().sum(1))
    # The root has no gradient at 0: a point and itself send none.
    delta = (CURVATURE * squares / inside).clamp(min=TINY)
    # arcosh(1 + 2δ); PyTorch's own is a hundred times slower than log1p.
    distances: Tensor = (2 * (delta + (delta + delta.square()).sqrt())).log1p() / CURVATURE**0.5
    return distances


def neighbour_triplets(distance: Tensor, similar: Tensor | None, neighbours: int, number: int) -> Triplets:
    """`number` triplets for each row i of [N, N] distances that has at least two mutual neighbours j; k is any other
    item that is not one. Items that share a label are nearer than all that do not."""
    nearness = (-distance).exp() + (0 if similar is None else similar)
    ranked = nearness.topk(min(neighbours, len(nearness)), dim=1).indices
    near = torch.zeros_like(nearness, dtype=torch.bool).scatter_(1, ranked, True)
    near = near & near.T
    itself = torch.eye(len(near), dtype=torch.bool, device=near.device)
    mutual, others = near & ~itself, ~near & ~itself
    rows = ((mutual.sum(1) > 1) & others.any(1)).nonzero().flatten()
    if not len(rows):
        return rows, rows, rows
    j, k = (columns_drawn(table[rows], number).flatten() for table in (mutual, others))
    return rows.repeat_interleave(number), j, k


def columns_drawn(table: Tensor, number: int) -> Tensor:
    """[N, number]: for each row of `table` that many of the columns where it is true, all with the same chance."""
    counts = table.cumsum(1)
    drawn = torch.rand(len(table), number, dtype=torch.float64, device=table.device) * counts[:, -1:]
    return torch.searchsorted(counts, drawn.long() + 1)


def gumbel_noise(table: Tensor) -> Tensor:
    """`table` filled with −log(−log u), u uniform: added to logits, the largest is one drawn by their softmax."""
    return table.uniform_().clamp_(min=TINY).log_().neg_().clamp_(min=TINY).log_().neg_()


def hierarchy_hinge(distance: Tensor, triplets: Triplets, noise: Tensor, margin: float, choice: float) -> Tensor:
    """[T]: for each triplet of rows of `distance` [N, M]

        max(0, d(i, ρ) − d(i, ρ') + m) + max(0, d(j, ρ) − d(j, ρ') + m) + max(0, d(k, ρ') − d(k, ρ) + m)

    with ρ the ancestor of i and j and ρ' that of all three; 0 where they are one. An ancestor is drawn by a softmax of
    −d/`choice`, d the distance to the farthest of its items, with the Gumbel `noise` [2, T, M] of both. It takes the
    gradient of the softmax with that noise (Jang et al., ICLR 2017).
    """
    items = [distance.index_select(0, rows) for rows in triplets]
    pair = larger(items[0], items[1])
    own, joint = (
        (drawn - far / choice).softmax(1) for far, drawn in zip((pair, larger(pair, items[2])), noise, strict=True)
    )
    first, second = own.argmax(1, keepdim=True), joint.argmax(1, keepdim=True)
    soft = own - joint
    soft = soft - soft.detach()
    i, j, k = ((d.gather(1, first) - d.gather(1, second)).squeeze(1) + (d.detach() * soft).sum(1) for d in items)
    losses = (i + margin).clamp(min=0) + (j + margin).clamp(min=0) + (margin - k).clamp(min=0)
    counted: Tensor = losses * (first != second).squeeze(1)
    return counted


def larger(a: Tensor, b: Tensor) -> Tensor:
    """`torch.maximum`, whose gradient takes far longer."""
    share = (a.detach() > b.detach()).to(a)
    return a * share + b * (1 - share)
