"""What training CLIP end to end costs in work, memory and hours, before there is a GPU to try it on.

Work and memory of a transformer of L layers of width w over n tokens, of which the multiplications by weights are all
but a few per cent (two operations per multiplication and addition):

    forward work           L (24 n w² + 4 n² w) operations
    kept for the way back  L n · 38 w bytes in bfloat16 with float32 sums: the inputs of two norms (8) and two products
                           (4), queries, keys and values (6), what attention gives, in two orders (4), and the inside
                           of the MLP before and after its GELU (16); with OpenAI's GELU 8 w more.

The way back takes twice the work of the way forward, and keeping nothing (`encoder.chunk`) one more way forward.
Weights take 18 bytes each: value, gradient and Adam's two moments in float32, and the copy in bfloat16 that is computed
with and kept for the way back. `measure` counts both on the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from kenthash.data.splits import Split, default_sizes, make_split
from kenthash.encoders.base import Encoder
from kenthash.training.recipe import Recipe

WEIGHT_BYTES = 18  # of a trained weight: its value, gradient and two moments, and its copy in bfloat16
TOKENS = 32  # of a text at most; captions have about half
PATCH_CHANNELS = 3


@dataclass(frozen=True)
class Gpu:
    name: str
    teraflops: float  # dense bfloat16 products with float32 sums, by the maker's sheet
    gigabytes: int


GPUS = (Gpu("RTX 4090", 165, 24), Gpu("L40S", 362, 48), Gpu("A100", 312, 80), Gpu("H100", 989, 80))


@dataclass(frozen=True)
class Tower:
    width: int
    layers: int
    tokens: int
    inputs: int  # values of all patches together, which become tokens; 0 where tokens are looked up
    outputs: int
    quick_gelu: bool = True

    @property
    def flops(self) -> float:
        """Of encoding one item."""
        n, w = self.tokens, self.width
        return self.layers * (24 * n * w**2 + 4 * n**2 * w) + 2 * self.inputs * w + 2 * w * self.outputs

    @property
    def kept_bytes(self) -> float:
        """What one item leaves for the way back."""
        return self.layers * self.tokens * self.width * (46 if self.quick_gelu else 38)


@dataclass(frozen=True)
class Cost:
    """Of one pair of a picture and a text, and of the network."""

    flops: float
    kept_bytes: float
    weights: int

    def step_flops(self, batch: int, chunk: int) -> float:
        ways = 4 if 0 < chunk < batch else 3
        return ways * batch * self.flops

    def memory(self, batch: int, chunk: int) -> float:
        """Bytes of a step, without what the libraries themselves take."""
        return self.weights * WEIGHT_BYTES + (min(chunk, batch) if chunk else batch) * self.kept_bytes

    def pairs(self, gpu: Gpu) -> int:
        """How many the memory of a GPU holds at once, as a batch or as a chunk of one."""
        return int((gpu.gigabytes * 1e9 - self.memory(0, 0)) / self.kept_bytes)


def arithmetic(config: dict[str, Any], weights: int, quick_gelu: bool) -> Cost:
    """By the formulas above, from a configuration of open_clip with a vision transformer."""
    vision, text, outputs = config["vision_cfg"], config["text_cfg"], config["embed_dim"]
    side = vision["image_size"] // vision["patch_size"]
    pixels = PATCH_CHANNELS * (side * vision["patch_size"]) ** 2
    towers = (
        Tower(vision["width"], vision["layers"], side**2 + 1, pixels, outputs, quick_gelu),
        Tower(text["width"], text["layers"], min(TOKENS, text["context_length"]), 0, outputs, quick_gelu),
    )
    return Cost(sum(t.flops for t in towers), sum(t.kept_bytes for t in towers), weights)


def measure(encoder: Encoder, batch: int = 2) -> Cost:
    """Counted on the CPU: the operations of a pair, and what twice as many pairs keep more for the way back."""
    flops, few = _forward(encoder, batch)
    _, many = _forward(encoder, 2 * batch)
    weights = sum(p.numel() for p in encoder.parameters() if p.requires_grad)
    return Cost(flops / batch, (many - few) / batch, weights)


def _forward(encoder: Encoder, batch: int) -> tuple[float, float]:
    pictures = torch.zeros(batch, PATCH_CHANNELS, encoder.size, encoder.size)
    tokens = encoder.tokenize(["word " * TOKENS] * batch)
    # Attention as plain products, with gradients: its faster forms are operations that the counter does not know.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        encoder.encode_pictures(pictures)
        encoder.encode_texts(tokens)
    with _saved_for_backward(encoder) as saved_bytes, torch.autocast("cpu", torch.bfloat16):
        vectors = encoder.encode_pictures(pictures), encoder.encode_texts(tokens)
    del vectors
    return float(counter.get_total_flops()), float(sum(saved_bytes.values()))


@contextmanager
def _saved_for_backward(encoder: Encoder) -> Iterator[dict[int, int]]:
    """The bytes of what autograd keeps, by where they lie; weights are not counted, they are there anyway."""
    own = {p.untyped_storage().data_ptr() for p in encoder.parameters()}
    saved_bytes: dict[int, int] = {}
    alive: list[Tensor] = []  # so that no place is used twice

    def note(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own:
            saved_bytes[place] = tensor.untyped_storage().nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield saved_bytes


@dataclass(frozen=True)
class RunCost:
    """Of one run of a recipe on a benchmark of so many items."""

    steps: int
    training_pictures: int  # decoded in all epochs
    other_pictures: int  # encoded for validation in every epoch, and at the end queries and database
    flops: float

    def hours(self, gpu: Gpu, utilisation: float, pictures_per_second: float = 0.0) -> float:
        """By the GPU's work or, where a rate is given and slower, by the pictures that can be decoded."""
        computing = self.flops / (gpu.teraflops * 1e12 * utilisation)
        decoding = (self.training_pictures + self.other_pictures) / pictures_per_second if pictures_per_second else 0.0
        return max(computing, decoding) / 3600


def run_cost(cost: Cost, recipe: Recipe, items: int) -> RunCost:
    """Training and validation of all epochs, and one evaluation."""
    split = _split(recipe, items)
    steps = recipe.epochs * (len(split.train) // recipe.batch)
    scored = len(split.validation_database()) if split.protocol == "honest" else len(split.query) + len(split.database)
    others = recipe.epochs * scored + len(split.query) + len(split.database)
    flops = steps * cost.step_flops(recipe.batch, recipe.encoder.chunk) + others * cost.flops
    return RunCost(steps, steps * recipe.batch, others, flops)


def _split(recipe: Recipe, items: int) -> Split:
    query, train = default_sizes(items)
    sizes = recipe.split
    return make_split(items, 0, recipe.protocol, sizes.query or query, sizes.train or train, sizes.validation)
