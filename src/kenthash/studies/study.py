"""What all targets of a study share: the data, the lengths, seeds and epochs, and the runs behind them.

Runs are ordinary run folders below OUT/runs, named METHOD-BITS-SEED, and made once for all targets.
"""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kenthash.analysis.cooccurrence import Classes, high_and_low
from kenthash.analysis.subject import Subject
from kenthash.analysis.topology import find_groups, read_groups
from kenthash.data.pack import FeaturePack
from kenthash.data.splits import make_split
from kenthash.encoders.pipeline import features_for
from kenthash.evaluation.inputs import Labels
from kenthash.methods import METHODS, ClosedForm
from kenthash.studies.grid import Job, run_all
from kenthash.training.recipe import Recipe, make_recipe
from kenthash.training.run_folder import Run
from kenthash.training.sources import FeatureSource
from kenthash.training.supervision import label_fault

BASELINE, METHOD = "dsph", "kdph"  # the pair of the paper's analyses: point proxies and Kent proxies
PAIR = (BASELINE, METHOD)
TITLES = tuple(METHODS[name].title for name in PAIR)


@dataclass(frozen=True)
class Study:
    data: Path
    out: Path
    bits: tuple[int, ...]  # most targets take the longest
    seeds: int
    epochs: int
    groups_file: Path | None = None
    other: Path | None = None  # a second data set, which `transfer` asks the models of the first

    @property
    def length(self) -> int:
        return max(self.bits)

    @cached_property
    def features(self) -> FeaturePack:
        return features_for(self.data, Recipe().encoder.spec)

    @cached_property
    def source(self) -> FeatureSource:
        return FeatureSource(self.features, torch.device("cpu"))

    @property
    def classes(self) -> list[str]:
        return self.features.dataset.classes

    @property
    def labels(self) -> Labels:
        return self.features.dataset.labels

    @cached_property
    def label_fault(self) -> str:
        """Why labels are of no use, by the split of the first seed; "" where they are."""
        return label_fault(self.labels, np.diff(self.features.text_offsets), make_split(len(self.labels), 0))

    @cached_property
    def sides(self) -> dict[str, Classes]:
        """The classes with most and those with fewest co-occurring labels."""
        return dict(zip(("high", "low"), high_and_low(self.labels), strict=True))

    @cached_property
    def groups(self) -> dict[str, list[int]] | None:
        path = find_groups(self.data, self.groups_file)
        return None if path is None else read_groups(path, self.classes)

    def job(self, name: str, bits: int, seed: int, layer: dict[str, Any], record: bool = False) -> Job:
        own = {"data": str(self.features.path), "bits": bits, "seed": seed}
        if not issubclass(METHODS[layer.get("method", Recipe.method)], ClosedForm):  # which is fitted, not trained
            own["epochs"] = self.epochs
        return Job(self.out / "runs" / f"{name}-{bits}-{seed}", asdict(make_recipe(layer, own)), record=record)

    def pair_jobs(self, bits: Sequence[int]) -> list[Job]:
        """The two methods of the analyses. They are always recorded, whichever target needs them first."""
        return [
            self.job(name, b, seed, {"method": name}, record=True)
            for name in PAIR
            for b in bits
            for seed in range(self.seeds)
        ]

    @cached_property
    def subjects(self) -> dict[str, list[Subject]]:
        """By method, one per seed."""
        jobs = self.pair_jobs([self.length])
        run_all(jobs, "recorded runs")
        subjects = [Subject(Run.open(job.out, "cpu"), self.source) for job in jobs]
        return {name: subjects[i * self.seeds : (i + 1) * self.seeds] for i, name in enumerate(PAIR)}

    @property
    def basis(self) -> str:
        """Data, split, length, epochs, seeds, protocol and tie rule, for under a table."""
        return self._basis(f"{self.length} bits, ")

    @property
    def basis_of_lengths(self) -> str:
        """The same under a table that names its lengths itself."""
        return self._basis("")

    def _basis(self, length: str) -> str:
        split = make_split(len(self.labels), 0)
        sizes = (len(split.query), len(split.train), len(split.validation), len(split.database))
        query, train, validation, database = (f"{size:,}" for size in sizes)
        seeds = "seed 0" if self.seeds == 1 else f"mean over seeds 0 to {self.seeds - 1}"
        return (
            f"{self.features.dataset.name}: {len(self.labels):,} items, {len(self.classes)} classes; {query} queries, "
            f"{train} training, {validation} validation and {database} database items; {length}"
            f"{self.epochs} epochs from random heads, {seeds}; protocol honest, expected ties."
        )

    def command(self, target: str) -> str:
        """What to type to make a target again."""
        words = ["kenthash", "reproduce", target, "--data", str(self.data), "--out", str(self.out)]
        words += ["--bits", ",".join(map(str, self.bits)), "--seeds", str(self.seeds), "--epochs", str(self.epochs)]
        for option, path in (("--groups", self.groups_file), ("--other", self.other)):
            words += [option, str(path)] if path else []
        return shlex.join(words)
