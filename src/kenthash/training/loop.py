"""The training loop. It knows batches, terms and rates, and nothing of any one method.

All randomness of an epoch comes from (seed, epoch): the order of items, the captions, dropout, what the losses draw.
So a run that is stopped between two epochs and taken up again ends in the same model, bit for bit.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from kenthash.data.splits import Rows
from kenthash.errors import KenthashError, UsageError
from kenthash.evaluation.inputs import Labels
from kenthash.methods import METHODS, Batch, Method, Shapes, settings_of
from kenthash.model.config import HasherConfig
from kenthash.model.heads import MlpHead, Standardise
from kenthash.model.network import HashNetwork
from kenthash.progress import track
from kenthash.training.distributed import add_gradients, gather, own_slice, rank, world_size
from kenthash.training.recipe import OptimizerRecipe, Recipe
from kenthash.training.sources import PictureSource, VectorSource

TOO_LARGE = 1e6  # a weighted term beyond this has diverged: outputs are bounded, honest terms stay below hundreds
LOG_EVERY = 10  # steps
STATISTICS = 2048  # training items whose vectors tell mean and deviation

StepLog = Callable[[int, dict[str, float]], None]


class Training:
    """Heads, method and optimisers of one recipe over one source, advanced an epoch at a time."""

    def __init__(self, recipe: Recipe, source: VectorSource, rows: Rows, device: torch.device) -> None:
        self.recipe, self.source, self.rows, self.device = recipe, source, rows, device
        self.batch = min(recipe.batch, len(rows) - len(rows) % world_size())
        if self.batch < 2:
            raise UsageError(f"{len(rows)} training items are too few for {world_size()} processes")
        self.own = own_slice(self.batch)
        self.steps = len(rows) // self.batch  # fewer items than a batch are left out, other ones in every epoch
        labels = _with_label_noise(source.dataset.labels, rows, recipe)
        self.labels = torch.from_numpy(labels).to(device, torch.float32)

        torch.manual_seed(int(np.random.default_rng([recipe.seed, 0]).integers(2**63)))
        trained = source.encoder if isinstance(source, PictureSource) else None
        config = HasherConfig(
            bits=recipe.bits,
            image_dim=source.image_dim,
            text_dim=source.text_dim,
            image_head=recipe.head,
            text_head=recipe.head,
            encoder=source.encoder_spec,
            encoder_trained=trained is not None,
            encoder_weights=source.encoder_weights,
        )
        self.network = HashNetwork(config, trained)
        self._standardise()
        kind = METHODS[recipe.method]
        shapes = Shapes(labels.shape[1], recipe.bits, source.image_dim, source.text_dim, len(rows))
        self.method: Method = kind(shapes, settings_of(kind, recipe.settings))
        self.modules = nn.ModuleDict({"hasher": self.network.modules(), "method": self.method}).to(device)

        heads = [p for head in (self.network.image_head, self.network.text_head) for p in head.parameters()]
        backbone = [p for p in trained.parameters() if p.requires_grad] if trained is not None else []
        self.encoding = heads + backbone
        main = make_optimizer(recipe.optimizer, [(heads, recipe.optimizer.lr), (backbone, recipe.encoder.lr)])
        self.optimizers = {"main": main}
        if own := [p for p in self.method.parameters() if p.requires_grad]:
            self.optimizers["proxy"] = make_optimizer(recipe.proxy_optimizer, [(own, recipe.proxy_optimizer.lr)])

    def _standardise(self) -> None:
        """Give the heads the statistics of their input, from a sample of the training items."""
        rows = np.random.default_rng([self.recipe.seed, 2]).permutation(self.rows)[:STATISTICS]
        with torch.inference_mode():
            parts = [
                self.source.vectors(some, np.zeros_like(some))
                for some in np.array_split(rows, -(-len(rows) // self.batch))  # as many pictures as a step would hold
            ]
        heads = (self.network.image_head, self.network.text_head)
        for head, vectors in zip(heads, zip(*parts, strict=True), strict=True):
            for module in (m for m in head.modules() if isinstance(m, Standardise)):
                module.fit(torch.cat(vectors).cpu())

    def epoch(self, number: int, log: StepLog) -> dict[str, float]:
        """Train epoch `number` (from 0); returns the mean of the loss and of every weighted term."""
        rng = np.random.default_rng([self.recipe.seed, 1, number])
        order = rng.permutation(len(self.rows))
        captions = rng.integers(self.source.captions[self.rows[order]])
        torch.manual_seed(int(rng.integers(2**63)))
        self.modules.train()
        sums: dict[str, float] = {}
        steps = range(self.steps)
        for step in track(steps, f"epoch {number + 1}", unit="steps") if rank() == 0 else steps:
            part = slice(step * self.batch, (step + 1) * self.batch)
            done = number * self.steps + step
            values = self.step(order[part], captions[part], done, log)
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value
        return {name: total / self.steps for name, total in sums.items()}

    def step(self, items: Rows, captions: Rows, done: int, log: StepLog) -> dict[str, float]:
        total = self.recipe.epochs * self.steps
        for head in (self.network.image_head, self.network.text_head):
            if isinstance(head, MlpHead):
                head.steepen(done / total)
        rows = self.rows[items]
        image, text = self.source.vectors(rows[self.own], captions[self.own], train=True)
        batch = Batch(
            x=gather(self.network.image_head(image)),
            t=gather(self.network.text_head(text)),
            labels=self.labels[torch.from_numpy(rows)],
            image_features=gather(image.detach()),
            text_features=gather(text.detach()),
            items=torch.from_numpy(items).to(self.device),
        )
        weights = self.method.weights()
        terms = {name: weights[name] * term for name, term in self.method.terms(batch).items()}
        loss = torch.stack(list(terms.values())).sum()
        values = dict(zip(terms, torch.stack([t.detach() for t in terms.values()]).tolist(), strict=True))
        self._refuse_divergence(values, done)

        for name, optimizer in self.optimizers.items():
            recipe = self.recipe.optimizer if name == "main" else self.recipe.proxy_optimizer
            set_rate(optimizer, rate_factor(recipe, done, total))
            optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        add_gradients(self.encoding)
        norm = clip_each(self.encoding, self.recipe.clip)
        for optimizer in self.optimizers.values():
            optimizer.step()
        values["loss"] = sum(values.values())
        if done % LOG_EVERY == 0:
            log(done, {f"loss/{name}": value for name, value in values.items()} | {"gradient_norm": norm.item()})
        return values

    def _refuse_divergence(self, values: dict[str, float], done: int) -> None:
        for name, value in values.items():
            if not math.isfinite(value) or abs(value) > TOO_LARGE:
                epoch, step = divmod(done, self.steps)
                raise KenthashError(
                    f"training diverged: the term '{name}' is {value:.3g} in epoch {epoch + 1}, step {step + 1}; "
                    "lower optimizer.lr or proxy_optimizer.lr, or the weight of that term"
                )


def _with_label_noise(labels: Labels, rows: Rows, recipe: Recipe) -> Labels:
    """`labels` [N, C] in which a share of the training `rows` has swapped labels around, so that every one of them has
    those of another item."""
    order = np.random.default_rng([recipe.seed, 3]).permutation(rows)
    chosen = order[: round(recipe.label_noise * len(rows))]
    noisy = labels.copy() if len(chosen) else labels
    noisy[chosen] = labels[np.roll(chosen, 1)]
    return noisy


def make_optimizer(recipe: OptimizerRecipe, groups: list[tuple[list[nn.Parameter], float]]) -> Optimizer:
    """An optimiser over groups of (parameters, rate). Fused kernels: one call per step instead of one per
    tensor."""
    parts: list[dict[str, Any]] = [{"params": params, "lr": lr, "base_lr": lr} for params, lr in groups if params]
    if recipe.name == "sgd":
        return torch.optim.SGD(parts, momentum=recipe.momentum, weight_decay=recipe.weight_decay, fused=True)
    kind = torch.optim.AdamW if recipe.name == "adamw" else torch.optim.Adam
    betas = (recipe.beta1, recipe.beta2)
    return kind(parts, betas=betas, eps=recipe.eps, weight_decay=recipe.weight_decay, fused=True)


def rate_factor(recipe: OptimizerRecipe, step: int, steps: int) -> float:
    """What the base rate is multiplied by at `step` (from 0) of `steps`."""
    warm = math.ceil(recipe.warmup * steps)
    if step < warm:
        return (step + 1) / warm
    if recipe.decay == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1)))


def set_rate(optimizer: Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor


def clip_each(parameters: Iterable[nn.Parameter], largest: float | None) -> Tensor:
    """Scale down every tensor's gradient whose norm exceeds `largest`, each by itself, as the field does.

    Returns the norm of all gradients together, before.
    """
    grads = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack(torch._foreach_norm(grads))
    if largest is not None:
        torch._foreach_mul_(grads, list((largest / (norms + 1e-6)).clamp(max=1.0)))
    norm: Tensor = norms.norm()
    return norm
