"""`kenthash bench train`: the time of a KDPH step compared with a DSPH step in the same run.

Synthetic vectors of 512 and 384 dimensions, linear heads, batch 128, 64 bits. Steps of all contestants alternate; each
is reported by its fastest block of steps, in CPU time, so that other load on the machine affects the result little.
The assignment of outputs to fair codes is also timed alone, because each KDPH step solves two of them.
"""

import multiprocessing
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from kenthash.data.dataset import Dataset
from kenthash.data.pack import FeaturePack
from kenthash.training.loop import Training
from kenthash.training.recipe import make_recipe
from kenthash.training.sources import FeatureSource, head_outputs

ITEMS, BITS, BATCH = 2048, 64, 128
BLOCK = 10  # steps timed together
MANY_CLASSES = 10_000
ASSIGNMENT_BATCHES = (128, 256, 512)


@dataclass(frozen=True)
class Contestant:
    name: str
    method: str
    classes: int
    settings: tuple[tuple[str, str], ...] = ()
    batch: int = BATCH


CONTESTANTS = (
    Contestant("DSPH, 80 classes", "dsph", 80),
    Contestant("KDPH, 80 classes", "kdph", 80),
    Contestant("KDPH, 80 classes, full frames", "kdph", 80, (("frame", "full"),)),
    Contestant("KDPH, 1,000 classes", "kdph", 1000),
)


def bench_train(blocks: int = 20) -> dict[str, float]:
    """CPU milliseconds per step of each contestant, their ratios, peak memory with 10,000 classes, and assignments."""
    torch.set_num_threads(1)  # as training on vectors does; waiting threads would count as CPU time
    trainings = [_training(c) for c in CONTESTANTS]
    fastest = [float("inf")] * len(trainings)
    for block in range(blocks + 1):  # the first block warms up
        for which, training in enumerate(trainings):
            spent = _block(training, block)
            if block:
                fastest[which] = min(fastest[which], spent)
    result = {f"{c.name}, ms": 1000 * ms for c, ms in zip(CONTESTANTS, fastest, strict=True)}
    dsph, kdph, full, many = fastest
    result |= {
        "KDPH / DSPH at 80 classes (bar: 3)": kdph / dsph,
        "KDPH with full frames / DSPH": full / dsph,
        "KDPH at 1,000 / 80 classes (bar: 4)": many / kdph,
        "KDPH at 10,000 classes, peak GiB (bar: 4)": peak_memory(MANY_CLASSES),
    }
    for batch in ASSIGNMENT_BATCHES:
        result |= bench_assignment(batch, blocks)
    return result


def bench_assignment(batch: int, blocks: int) -> dict[str, float]:
    """A KDPH step at this batch size, and the share that its two assignments of outputs to fair codes have of it."""
    training = _training(Contestant("assignment", "kdph", 80, batch=batch))
    costs = _assignment_costs(training, batch)
    step = assignment = float("inf")
    for block in range(blocks + 1):
        spent = _block(training, block), _mean_time_of_assignment(costs)
        if block:
            step, assignment = min(step, spent[0]), min(assignment, spent[1])
    return {
        f"KDPH step at batch {batch}, ms": 1000 * step,
        f"one assignment at batch {batch}, ms": 1000 * assignment,
        f"two assignments / KDPH step at batch {batch}": 2 * assignment / step,
    }


def _assignment_costs(training: Training, batch: int, number: int = 4) -> list[NDArray[np.float64]]:
    """The costs of carrying outputs of both modalities to fair codes, of several batches."""
    rng = np.random.default_rng(0)
    costs = []
    for _ in range(number):
        outputs = head_outputs(training.network, training.source, rng.choice(ITEMS, batch, replace=False))
        codes = rng.integers(0, 2, (batch, BITS)) * 2.0 - 1
        costs += [-(side.astype(np.float64) @ codes.T) for side in (outputs.image, outputs.text)]
    return costs


def _mean_time_of_assignment(costs: list[NDArray[np.float64]]) -> float:
    began = time.process_time()
    for square in costs:
        linear_sum_assignment(square)
    return (time.process_time() - began) / len(costs)


def _block(training: Training, block: int) -> float:
    rng, batch = np.random.default_rng(block), training.recipe.batch
    began = time.process_time()
    for step in range(BLOCK):
        items = rng.integers(ITEMS, size=batch)
        training.step(items, np.zeros(batch, np.int64), step, lambda *_: None)
    return (time.process_time() - began) / BLOCK


def _training(contestant: Contestant) -> Training:
    rng = np.random.default_rng(0)
    classes = contestant.classes
    labels = (rng.random((ITEMS, classes)) < 2 / classes).astype(np.uint8)
    labels[np.arange(ITEMS), rng.integers(classes, size=ITEMS)] = 1  # 3 labels per item, as in COCO
    pack = FeaturePack(
        path=Path("synthetic"),
        dataset=Dataset("synthetic", [str(i) for i in range(ITEMS)], labels, [str(c) for c in range(classes)]),
        image=rng.standard_normal((ITEMS, 512), np.float32),
        text=rng.standard_normal((ITEMS, 384), np.float32),
        text_offsets=np.arange(ITEMS + 1),
        encoders={},
    )
    settings = dict(contestant.settings)
    recipe = make_recipe({"method": contestant.method, "bits": BITS, "batch": contestant.batch, "settings": settings})
    device = torch.device("cpu")
    return Training(recipe, FeatureSource(pack, device), np.arange(ITEMS), device)


def peak_memory(classes: int) -> float:
    """Peak resident GiB of a fresh process that runs a few KDPH steps with this number of classes."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_steps_and_peak, (classes,))


def _steps_and_peak(classes: int) -> float:
    _block(_training(Contestant("many", "kdph", classes)), 0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
