"""Many runs on all cores: those that are there already are kept, those that are missing are made.

Each worker process trains with one thread: heads on frozen vectors are small, and two single-threaded runs finish
sooner than two runs one after another with two threads each.
"""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kenthash.errors import KenthashError, UsageError
from kenthash.progress import bar
from kenthash.training.recipe import make_recipe, read_recipe


@dataclass(frozen=True)
class Job:
    """One run: where it goes, and the layer of settings that makes its recipe."""

    out: Path
    layer: dict[str, Any]
    evaluate: bool = True  # on the query set; a run that only tunes never sees it
    record: bool = False  # keep proxies and outputs of every epoch

    @property
    def done(self) -> bool:
        return (self.out / ("metrics.json" if self.evaluate else "model/config.json")).is_file()


def run_all(jobs: Sequence[Job], what: str = "runs") -> None:
    """Make every run that is not finished. A failed one does not stop the others; all failures are then reported."""
    for job in jobs:
        _check_same(job)
    missing = [job for job in jobs if not job.done]
    if not missing:
        return
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    failures: list[str] = []
    with (
        bar(len(jobs), what, "runs", initial=len(jobs) - len(missing)) as progress,
        ProcessPoolExecutor(min(cores, len(missing)), context, initializer=_one_thread) as pool,
    ):
        waiting: dict[Future[None], Job] = {pool.submit(_make, job): job for job in missing}
        for done in as_completed(waiting):
            try:
                done.result()
            except KenthashError as error:
                failures.append(f"{waiting[done].out.name}: {error}")
            progress.update()
    if failures:
        raise KenthashError(f"{len(failures)} of {len(missing)} runs failed; the first: {failures[0]}")


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # of the evaluation's kernels; torch is told below
    import torch

    torch.set_num_threads(1)


def _check_same(job: Job) -> None:
    """A run of other settings under the same name must not pass for this one, nor be lost."""
    stored = job.out / "recipe.yaml"
    if stored.is_file() and make_recipe(read_recipe(stored)) != make_recipe(job.layer):
        raise UsageError(f"{job.out}: was made with other settings: choose another --out, or remove it")


def _make(job: Job) -> None:
    from kenthash.runs.evaluate import evaluate_run
    from kenthash.runs.train import train_run

    train_run(make_recipe(job.layer), job.out, resume=True, quiet=True, record=job.record)
    if job.evaluate:
        evaluate_run(job.out)
