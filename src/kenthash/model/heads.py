"""Hash heads: the vectors of one encoder tower to K outputs in [-1, 1], whose signs are the code.

A head is data: its kind and sizes stand in the model's `config.json`, so that a saved model is rebuilt without the
method that trained it.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize

from kenthash.model.config import HeadConfig

NOISE = 1e-4  # of the median deviation: a dimension that changes by less holds nothing but rounding


class Standardise(nn.Module):
    """Vectors to zero mean and unit deviation in every dimension, by statistics of the training items.

    Every head begins with it, so that methods are not compared by the scale of their inputs: CLIP's vectors have a norm
    of about 10, those of sentence encoders 1. The statistics are taken once, before training, not batch by batch: so
    processes that share a batch agree, and an item's code never depends on its neighbours.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("deviation", torch.ones(dim))

    def fit(self, features: Tensor) -> None:
        """Take the statistics from `features` [N, D]; the scale of a dimension that hardly changes is left as it is.

        Three dimensions of MiniLM are zero but for 1e-8. Of these the float16 of a pack keeps something else than the
        float32 of a text that is searched for: divided by their deviation they would change a fifth of its bits.
        """
        deviation, mean = torch.std_mean(features, 0, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > NOISE * deviation.median(), deviation, 1.0))

    def forward(self, features: Tensor) -> Tensor:
        return (features - self.mean) / self.deviation

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *arguments: Any) -> None:
        """Weights saved before every head standardised have no statistics: their vectors are left as they are."""
        if f"{prefix}mean" not in state_dict and f"{prefix}deviation" not in state_dict:
            state_dict[f"{prefix}mean"] = torch.zeros_like(self.mean)
            state_dict[f"{prefix}deviation"] = torch.ones_like(self.deviation)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class SharedDropout(nn.Module):
    """Zero each value with probability `p` in training and scale the rest by 1/(1-p).

    Every process draws the mask of the whole global batch from the common random state and keeps its own rows.
    So two processes with half a batch each see the very masks that one process would, and learn the same model.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        together = dist.is_initialized()
        world, rank = (dist.get_world_size(), dist.get_rank()) if together else (1, 0)
        rows = len(x)
        mask = torch.rand((world * rows, *x.shape[1:]), device=x.device)[rank * rows : (rank + 1) * rows] >= self.p
        return x * mask / (1 - self.p)


class TanhHead(nn.Module):
    """Linear(D→K), dropout, tanh: the head that the CLIP-based methods of the field share (DSPH, TCSVT 2023).

    With `hidden`, one layer of that many ReLU units before it.
    """

    def __init__(self, dim: int, bits: int, config: HeadConfig) -> None:
        super().__init__()
        self.standardise = Standardise(dim)
        if config.hidden:
            self.layers = nn.Sequential(
                nn.Linear(dim, config.hidden), nn.ReLU(), SharedDropout(config.dropout), nn.Linear(config.hidden, bits)
            )
        else:
            self.layers = nn.Sequential(nn.Linear(dim, bits), SharedDropout(config.dropout))

    def forward(self, features: Tensor) -> Tensor:
        return torch.tanh(self.layers(self.standardise(features)))

    def set_linear(self, weight: Tensor, bias: Tensor) -> None:
        """Become tanh(W x + b) of the vectors x as they are given, by `weight` [K, D] and `bias` [K]."""
        layer = self.layers[0]
        assert isinstance(layer, nn.Linear) and len(self.layers) == 2, "a head with hidden units is not linear"
        with torch.no_grad():
            layer.weight.copy_(weight * self.standardise.deviation)
            layer.bias.copy_(bias + weight @ self.standardise.mean)


class MlpHead(nn.Module):
    """One layer of `hidden` ReLU units, dropout, Linear(hidden→K), tanh: the head of KAPH.

    The slope of the tanh grows from 1 to `slope` in training, so that outputs end near the signs that they become
    (HashNet, Cao et al., ICCV 2017).
    """

    def __init__(self, dim: int, bits: int, config: HeadConfig) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            Standardise(dim),
            nn.Linear(dim, config.hidden),
            nn.ReLU(),
            SharedDropout(config.dropout),
            nn.Linear(config.hidden, bits),
        )
        self.last_slope = self.slope = config.slope

    def steepen(self, share: float) -> None:
        """Take the slope that belongs to this share of all training steps."""
        self.slope = 1 + (self.last_slope - 1) * share

    def forward(self, features: Tensor) -> Tensor:
        return torch.tanh(self.slope * self.layers(features))


class UnitHead(nn.Module):
    """The layers of `MlpHead`, scaled to length √K instead of squashed: a float embedding learned as codes are, which
    they are compared with (`kenthash reproduce bytes`)."""

    def __init__(self, dim: int, bits: int, config: HeadConfig) -> None:
        super().__init__()
        self.layers = MlpHead(dim, bits, config).layers

    def forward(self, features: Tensor) -> Tensor:
        values: Tensor = self.layers(features)
        scaled: Tensor = normalize(values) * values.shape[1] ** 0.5
        return scaled


class SoftmaxPairHead(nn.Module):
    """Linear(D→hidden), ReLU, then two units per bit under a softmax, of which the larger is the bit (DCHMT, MM 2022).

    The output is the difference o = p₁ − p₀ of a pair: its sign is the bit, and p = (1 ± o)/2 recovers the pair.
    """

    def __init__(self, dim: int, bits: int, config: HeadConfig) -> None:
        super().__init__()
        self.standardise = Standardise(dim)
        self.embed = nn.Sequential(nn.Linear(dim, config.hidden), nn.ReLU(), SharedDropout(config.dropout))
        self.pairs = nn.Linear(config.hidden, 2 * bits)

    def forward(self, features: Tensor) -> Tensor:
        zero, one = self.pairs(self.embed(self.standardise(features))).unflatten(1, (-1, 2)).unbind(2)
        return torch.tanh((one - zero) / 2)  # = p₁ − p₀ of the softmax of (zero, one)


class TanhMlpHead(nn.Module):
    """Three layers with tanh after each, D→hidden→hidden→K, a bias in the first only (RDPH, TMM 2024)."""

    def __init__(self, dim: int, bits: int, config: HeadConfig) -> None:
        super().__init__()
        self.standardise = Standardise(dim)
        self.layers = nn.Sequential(
            nn.Linear(dim, config.hidden),
            nn.Tanh(),
            nn.Linear(config.hidden, config.hidden, bias=False),
            nn.Tanh(),
            SharedDropout(config.dropout),
            nn.Linear(config.hidden, bits, bias=False),
        )

    def forward(self, features: Tensor) -> Tensor:
        return torch.tanh(self.layers(self.standardise(features)))


class ResidualHead(nn.Module):
    """Two residual blocks x + MLP(LN(x)), D→hidden→D with GELU, then Linear(D→K) and tanh (MITH, MM 2023)."""

    def __init__(self, dim: int, bits: int, config: HeadConfig) -> None:
        super().__init__()
        hidden = config.hidden or 4 * dim
        self.standardise = Standardise(dim)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(dim),
                nn.Linear(dim, hidden),
                nn.GELU(),
                SharedDropout(config.dropout),
                nn.Linear(hidden, dim),
            )
            for _ in range(2)
        )
        self.hash = nn.Linear(dim, bits, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        features = self.standardise(features)
        for block in self.blocks:
            features = features + block(features)
        return torch.tanh(self.hash(features))


class HouseholderHead(nn.Module):
    """The tanh head's outputs, scaled to unit length and turned by a learned product of K Householder reflections.

    The turn leaves the cosines of one modality's outputs as they are and moves them nearer to their signs
    (Schwengber et al., arXiv 2311.04207; DAGtH, ESWA 2025, brings it to two modalities).
    """

    def __init__(self, dim: int, bits: int, config: HeadConfig) -> None:
        super().__init__()
        self.embed = TanhHead(dim, bits, config)
        self.reflections = nn.Parameter(torch.eye(bits))
        self.turn: Tensor
        self.register_buffer("turn", torch.empty(bits, bits), persistent=False)

    def train(self, mode: bool = True) -> Self:
        """Leaving training fixes the turn: encoding then costs one product, and the head can be exported."""
        if not mode:
            with torch.no_grad():
                self.turn.copy_(householder(self.reflections))
        return super().train(mode)

    def forward(self, features: Tensor) -> Tensor:
        return normalize(self.embed(features)) @ (householder(self.reflections) if self.training else self.turn)


def householder(vectors: Tensor) -> Tensor:
    """The product H₁H₂⋯ of the reflections H_i = I − 2vvᵀ/‖v‖² in the columns v of `vectors` [K, n].

    The compact form I − V T⁻¹ Vᵀ, T = the upper triangle of VᵀV with its diagonal halved (Joffrain et al. 2006):
    one triangular solve instead of n rank-one updates.
    """
    gram = vectors.T @ vectors
    halves = gram.triu(1) + torch.diag(gram.diagonal() / 2)
    identity = torch.eye(len(vectors), dtype=vectors.dtype, device=vectors.device)
    product: Tensor = identity - vectors @ torch.linalg.solve_triangular(halves, vectors.T, upper=True)
    return product


HEADS: dict[str, Callable[[int, int, HeadConfig], nn.Module]] = {
    "tanh": TanhHead,
    "mlp": MlpHead,
    "softmax_pair": SoftmaxPairHead,
    "tanh_mlp": TanhMlpHead,
    "residual": ResidualHead,
    "householder": HouseholderHead,
    "unit": UnitHead,
}


def make_head(dim: int, bits: int, config: HeadConfig) -> nn.Module:
    return HEADS[config.kind](dim, bits, config)
