"""The training loop. It knows batches, terms and rates, and nothing of any one method.

All randomness of an epoch comes from (seed, epoch): the order of items, the captions, dropout, what the losses draw.
So a run that is stopped between two epochs and taken up again ends in the same model, bit for bit.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from kenthash.data.splits import Rows
from kenthash.errors import KenthashError, UsageError
from kenthash.evaluation.inputs import Labels
from kenthash.methods import METHODS, Batch, ClosedForm, Method, Shapes, ShortQueries, settings_of
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.heads import MlpHead, Standardise, TanhHead
from kenthash.model.network import HashNetwork
from kenthash.progress import track
from kenthash.training.distributed import add_gradients, gather, own_slice, rank, world_size
from kenthash.training.lacking import captions_without, labels_without
from kenthash.training.recipe import OptimizerRecipe, Recipe
from kenthash.training.short_texts import ShortTexts, no_short_texts
from kenthash.training.sources import FeatureSource, PictureSource, VectorSource
from kenthash.training.start import open_start
from kenthash.training.supervision import learnable, teaching_labels

TOO_LARGE = 1e6  # a weighted term beyond this has diverged: outputs are bounded, honest terms stay below hundreds
LOG_EVERY = 10  # steps
STATISTICS = 2048  # training items whose vectors tell mean and deviation

StepLog = Callable[[int, dict[str, float]], None]


class Training:
    """Heads, method and optimisers of one recipe over one source, advanced an epoch at a time."""

    def __init__(
        self,
        recipe: Recipe,
        source: VectorSource,
        rows: Rows,
        device: torch.device,
        frozen: FeatureSource | None = None,
    ) -> None:
        """`frozen` has the vectors of the epochs in which an encoder that is to be trained does not learn yet."""
        kind = METHODS[recipe.method]
        lacking = recipe.lacking
        labels = labels_without(source.dataset.labels, rows, lacking.labels, recipe.seed)
        labels = teaching_labels(labels, rows)
        self.captions = captions_without(source.captions, rows, lacking.captions, recipe.seed)
        rows = learnable(kind, labels, self.captions, rows)
        self.recipe, self.source, self.rows, self.device = recipe, source, rows, device
        self.frozen = frozen
        if frozen is not None and recipe.encoder.frozen_epochs >= recipe.epochs:
            raise UsageError(
                f"encoder.frozen_epochs={recipe.encoder.frozen_epochs}: none of {recipe.epochs} epochs is left in "
                "which the encoder learns: lower it, or leave encoder.trainable out"
            )
        self.batch = min(recipe.batch, len(rows) - len(rows) % world_size())
        if self.batch < 2:
            raise UsageError(f"{len(rows)} training items are too few for {world_size()} processes")
        self.own = own_slice(self.batch)
        self.steps = len(rows) // self.batch  # fewer items than a batch are left out, other ones in every epoch
        self.epochs = recipe.epochs
        labels = _with_label_noise(labels, rows, recipe)
        self.labels = torch.from_numpy(labels).to(device, torch.float32)

        torch.manual_seed(int(np.random.default_rng([recipe.seed, 0]).integers(2**63)))
        trained = source.encoder if isinstance(source, PictureSource) else None
        head = HeadConfig(dropout=0.0) if issubclass(kind, ClosedForm) else recipe.head
        start = open_start(recipe, source, head)
        if start is not None:
            head = replace(head, hidden=max(head.hidden, start.config.image_head.hidden))
        config = HasherConfig(
            bits=recipe.bits,
            image_dim=source.image_dim,
            text_dim=source.text_dim,
            image_head=head,
            text_head=head,
            encoder=source.encoder_spec,
            encoder_trained=trained is not None,
            encoder_weights=source.encoder_weights,
            nested=recipe.nested,
        )
        self.network = HashNetwork(config, trained)
        self.start = None
        if start is not None:
            self.network.start_from(start)
            if trained is None:  # heads of one encoder say nothing of another's vectors
                self.start = start.modules().to(device)
        else:
            self._standardise()
        shapes = Shapes(labels.shape[1], recipe.bits, source.image_dim, source.text_dim, len(rows))
        settings = settings_of(kind, recipe.settings)
        # Nested codes have a method for each length, whose proxies and memories are of that length.
        lengths = (recipe.bits, *recipe.nested)
        self.methods: dict[int, Method] = {bits: kind(replace(shapes, bits=bits), settings) for bits in lengths}
        self.method = self.methods[recipe.bits]
        self.short = self._short_texts(labels) if self.method.uses_short_texts() else None
        if isinstance(self.method, ClosedForm):
            if trained is not None:
                raise UsageError(f"{kind.key} is fitted, not trained, and cannot train an encoder with it")
            self.steps, self.epochs = 0, 1
            self._fit(self.method)
        nested = nn.ModuleDict({str(bits): self.methods[bits] for bits in recipe.nested})
        parts = {"hasher": self.network.modules(), "method": self.method, "nested": nested}
        self.modules = nn.ModuleDict(parts).to(device)

        heads = [p for head in (self.network.image_head, self.network.text_head) for p in head.parameters()]
        backbone = [p for p in trained.parameters() if p.requires_grad] if trained is not None else []
        self.encoding = heads + backbone
        joins = 0 if frozen is None else recipe.encoder.frozen_epochs * self.steps
        groups = [(heads, recipe.optimizer.lr, 0), (backbone, recipe.encoder.lr, joins)]
        main = make_optimizer(recipe.optimizer, groups)
        self.optimizers = {"main": main}
        if own := [p for method in self.methods.values() for p in method.parameters() if p.requires_grad]:
            self.optimizers["proxy"] = make_optimizer(recipe.proxy_optimizer, [(own, recipe.proxy_optimizer.lr, 0)])

    def source_of(self, epoch: int) -> VectorSource:
        """Where the vectors of epoch `epoch` (from 0) come from."""
        return self.source if self.frozen is None or epoch >= self.recipe.encoder.frozen_epochs else self.frozen

    def _standardise(self) -> None:
        """Give the heads the statistics of their input, from a sample of the training items."""
        rows = np.random.default_rng([self.recipe.seed, 2]).permutation(self.rows)[:STATISTICS]
        image, text = self._first_vectors(rows)
        captioned = torch.from_numpy(self.captions[rows] > 0)
        if not captioned.any():  # few items have a caption, and none of the sample
            text = self._first_vectors(self.rows[self.captions[self.rows] > 0][:STATISTICS])[1]
            captioned = torch.ones(len(text), dtype=torch.bool)
        for head, vectors in ((self.network.image_head, image), (self.network.text_head, text[captioned])):
            for module in (m for m in head.modules() if isinstance(m, Standardise)):
                module.fit(vectors)

    def _first_vectors(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Vectors of pictures and first captions, on the CPU."""
        with torch.inference_mode():
            parts = [
                self.source_of(0).vectors(chunk, np.zeros_like(chunk))
                for chunk in np.array_split(rows, -(-len(rows) // self.batch))  # as many pictures as a step would hold
            ]
        image, text = (torch.cat(vectors).cpu() for vectors in zip(*parts, strict=True))
        return image, text

    def _fit(self, method: ClosedForm) -> None:
        """Heads of one linear layer, as the method works them out from all training items."""
        image, text = self._first_vectors(self.rows)
        maps = method.fit(image.numpy(), text.numpy(), self.recipe.seed)
        for head, affine in zip((self.network.image_head, self.network.text_head), maps, strict=True):
            assert isinstance(head, TanhHead)
            head.set_linear(torch.from_numpy(affine.weight.T), torch.from_numpy(affine.bias))

    def epoch(self, number: int, log: StepLog) -> dict[str, float]:
        """Train epoch `number` (from 0); returns the mean of the loss and of every weighted term.

        What is fitted, not trained, takes no steps and has no loss.
        """
        rng = np.random.default_rng([self.recipe.seed, 1, number])
        order = rng.permutation(len(self.rows))
        captions = rng.integers(np.maximum(self.captions[self.rows[order]], 1))
        torch.manual_seed(int(rng.integers(2**63)))
        self.modules.train()
        sums: dict[str, float] = {}
        steps = range(self.steps)
        for step in track(steps, f"epoch {number + 1}", unit="steps") if rank() == 0 else steps:
            part = slice(step * self.batch, (step + 1) * self.batch)
            steps_done = number * self.steps + step
            values = self.step(order[part], captions[part], steps_done, log)
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value
        return {name: total / self.steps for name, total in sums.items()}

    def step(self, items: Rows, captions: Rows, steps_done: int, log: StepLog) -> dict[str, float]:
        total = self.recipe.epochs * self.steps
        for head in (self.network.image_head, self.network.text_head):
            if isinstance(head, MlpHead):
                head.steepen(steps_done / total)
        rows = self.rows[items]
        source = self.source_of(steps_done // self.steps)
        image, text = source.vectors(rows[self.own], captions[self.own], train=True)
        batch = self._with_start(
            Batch(
                x=gather(self.network.image_head(image)),
                t=gather(self.network.text_head(text)),
                labels=self.labels[torch.from_numpy(rows)],
                image_features=gather(image.detach()),
                text_features=gather(text.detach()),
                items=torch.from_numpy(items).to(self.device),
                captioned=torch.from_numpy(self.captions[rows] > 0).to(self.device),
                short=self._short_queries(items, source, steps_done),
            )
        )
        terms = self.weighted_terms(batch)
        loss = torch.stack(list(terms.values())).sum()
        values = dict(zip(terms, torch.stack([t.detach() for t in terms.values()]).tolist(), strict=True))
        self._refuse_divergence(values, steps_done)

        for name, optimizer in self.optimizers.items():
            recipe = self.recipe.optimizer if name == "main" else self.recipe.proxy_optimizer
            set_rate(optimizer, recipe, steps_done, total)
            optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        add_gradients(self.encoding)
        norm = clip_each(self.encoding, self.recipe.clip)
        for optimizer in self.optimizers.values():
            optimizer.step()
        values["loss"] = sum(values.values())
        if steps_done % LOG_EVERY == 0:
            log(steps_done, {f"loss/{name}": value for name, value in values.items()} | {"gradient_norm": norm.item()})
        return values

    def _with_start(self, batch: Batch) -> Batch:
        if self.start is None:
            return batch
        with torch.no_grad():
            image, text = self.start["image_head"](batch.image_features), self.start["text_head"](batch.text_features)
        return replace(batch, start=(image, text))

    def _short_texts(self, labels: Labels) -> ShortTexts | None:
        """All of them encoded, unless the encoder learns; None where there are none, or no encoder for them."""
        if no_short_texts(self.source):
            return None
        short = ShortTexts(self.source.dataset, labels, self.captions, self.rows)
        for source in (self.source, self.frozen):
            if short.texts and isinstance(source, FeatureSource):
                source.written(short.texts)
        return short if short.texts else None

    def _short_queries(self, items: Rows, source: VectorSource, steps_done: int) -> ShortQueries | None:
        if self.short is None:
            return None
        texts, *masks = self.short.draw(items, np.random.default_rng([self.recipe.seed, 4, steps_done]))
        if not len(texts):
            return None
        outputs = self.network.text_head(self.short.vectors(texts[own_slice(len(texts))], source))
        return ShortQueries(gather(outputs), *(torch.from_numpy(mask).to(self.device) for mask in masks))

    def weighted_terms(self, batch: Batch) -> dict[str, Tensor]:
        """The method's terms with their weights; with nested codes, the mean over all lengths."""
        terms: dict[str, Tensor] = {}
        for bits, method in self.methods.items():
            weights = method.weights()
            for name, term in method.terms(batch.first_bits(bits)).items():
                weighted = weights[name] / len(self.methods) * term
                terms[name] = terms[name] + weighted if name in terms else weighted
        return terms

    def _refuse_divergence(self, values: dict[str, float], steps_done: int) -> None:
        for name, value in values.items():
            if not math.isfinite(value) or abs(value) > TOO_LARGE:
                epoch, step = divmod(steps_done, self.steps)
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


def make_optimizer(recipe: OptimizerRecipe, groups: list[tuple[list[nn.Parameter], float, int]]) -> Optimizer:
    """An optimiser over groups of (parameters, rate, first step). Fused kernels: one call per step instead of one per
    tensor."""
    parts: list[dict[str, Any]] = [
        {"params": params, "lr": lr, "base_lr": lr, "first": first} for params, lr, first in groups if params
    ]
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


def set_rate(optimizer: Optimizer, recipe: OptimizerRecipe, step: int, steps: int) -> None:
    """The rate of every group at `step` of `steps`; one that joins later warms up and decays over what is left."""
    for group in optimizer.param_groups:
        first = group["first"]
        group["lr"] = group["base_lr"] * rate_factor(recipe, step - first, steps - first) if step >= first else 0.0


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
