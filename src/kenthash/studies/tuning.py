"""The same search budget for every method, spent on validation data alone.

Each try draws a dropout, the values for which the method names a range of its own (`Method.ranges`), and multiplies the
method's rates and its other numbers by random factors; the first try is the defaults themselves. The query set plays no
part: a try is scored by its best validation epoch, on a split whose seed is none of those that are reported, and no try
is ever evaluated on queries. A try that fails, as one whose rate makes it diverge, has lost.
"""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from kenthash.errors import KenthashError
from kenthash.files import read_json, write_json
from kenthash.methods import METHODS
from kenthash.studies.grid import Job, try_all
from kenthash.training.recipe import make_recipe

TUNING_SEED = 1_000_003  # far from the seeds of reported runs
RATE_FACTORS = (0.3, 1.0, 3.0)
DROPOUTS = (0.2, 0.5)  # the field's, and what wide heads on frozen vectors want
SETTING_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def tuned_layers(
    folder: Path, data: Path, methods: Sequence[str], bits: int, layer: dict[str, Any], tries: int
) -> dict[str, dict[str, Any]]:
    """For each method, `layer` with the best of `tries` settings at `bits` over it; all tries run side by side."""
    if tries == 0:
        return dict.fromkeys(methods, layer)
    common = {"data": str(data), "bits": bits, "seed": TUNING_SEED, "protocol": "honest"}
    candidates = {method: propose(method, bits, layer, tries) for method in methods}
    jobs = {
        method: [
            Job(folder / f"{method}-{bits}-{number}", {**candidate, **common, "method": method}, evaluate=False)
            for number, candidate in enumerate(candidates[method])
        ]
        for method in methods
    }
    failures = try_all([job for of_method in jobs.values() for job in of_method], f"tuning at {bits} bits")
    chosen = {}
    for method in methods:
        scores = [None if job.out in failures else _score(job) for job in jobs[method]]
        known = {number: score for number, score in enumerate(scores) if score is not None}
        if not known:
            first = jobs[method][0].out
            raise KenthashError(f"{method}: all {tries} settings that were tried failed; the first: {failures[first]}")
        best = max(known, key=known.__getitem__)
        chosen[method] = candidates[method][best]
        write_json(folder / f"{method}-{bits}.json", {"scores": scores, "best": best, "layer": chosen[method]})
    return chosen


def _score(job: Job) -> float:
    return float(max(record["score"] for record in read_json(job.out / "history.json")))


def propose(method: str, bits: int, layer: dict[str, Any], tries: int) -> list[dict[str, Any]]:
    """The settings to try, the same for the same arguments: the defaults, then random ones around them."""
    rng = np.random.default_rng([bits, *method.encode()])
    base = make_recipe({**layer, "method": method, "bits": bits})
    values: dict[str, tuple[Any, ...]] = {
        "head.dropout": DROPOUTS,
        "optimizer.lr": tuple(base.optimizer.lr * factor for factor in RATE_FACTORS),
        "proxy_optimizer.lr": tuple(base.proxy_optimizer.lr * factor for factor in RATE_FACTORS),
    }
    for name in (f.name for f in fields(METHODS[method].settings_class) if isinstance(base.settings[f.name], float)):
        values[f"settings.{name}"] = tuple(base.settings[name] * factor for factor in SETTING_FACTORS)
    values |= METHODS[method].ranges
    candidates = [layer]
    for _ in range(tries - 1):
        candidate = dict(layer)
        for name, choices in values.items():
            section, _, leaf = name.rpartition(".")
            value = choices[rng.integers(len(choices))]
            if section:
                candidate[section] = {**candidate.get(section, {}), leaf: value}
            else:
                candidate[leaf] = value
        candidates.append(candidate)
    return candidates
