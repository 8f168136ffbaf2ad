"""Many runs on all cores: those that are there already are kept, those that are missing are made.

Each worker process trains with one thread: heads on frozen vectors are small, and two single-threaded runs finish
sooner than two runs one after another with two threads each.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tqdm import tqdm

from kenthash.errors import KenthashError, UsageError
from kenthash.progress import bar, cores
from kenthash.training.recipe import make_recipe, stored_recipe


@dataclass(frozen=True)
class Job:
    """One run: where it goes, and the layer of settings that makes its recipe."""

    out: Path
    layer: dict[str, Any]
    evaluate: bool = True  # on the query set; a run that only tunes never sees it
    record: bool = False  # keep proxies and outputs of every epoch

    @property
    def is_finished(self) -> bool:
        return (self.out / ("metrics.json" if self.evaluate else "model/config.json")).is_file()


def run_all(jobs: Sequence[Job], what: str = "runs") -> None:
    """Make every run that is not finished. A failed one does not stop the others; it is an error in the end."""
    if failures := try_all(jobs, what):
        first = next(iter(failures))
        raise KenthashError(f"{len(failures)} of {len(jobs)} runs failed; the first: {first.name}: {failures[first]}")


def try_all(jobs: Sequence[Job], what: str) -> dict[Path, str]:
    """Make every run that is not finished; returns why some of them failed, by their folders."""
    jobs = list({job.out: job for job in jobs}.values())  # the same run twice is one run
    for job in jobs:
        check_job(job)
    missing = [job for job in jobs if not job.is_finished]
    if not missing:
        return {}
    # A fork server imports PyTorch once for all workers of this process; where there is none (Windows), each does.
    context = multiprocessing.get_context(
        "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    )
    # `torch._dynamo` is what every optimizer imports when it is made, which takes a second.
    context.set_forkserver_preload(["kenthash.training.train", "kenthash.training.evaluate", "torch._dynamo"])
    failures: dict[Path, str] = {}
    with (
        _raising_on_sigterm(),
        bar(len(jobs), what, "runs", initial=len(jobs) - len(missing)) as progress,
        ProcessPoolExecutor(min(cores(), len(missing)), context, initializer=_set_up_worker) as pool,
    ):
        waiting: dict[Future[None], Job] = {pool.submit(_train_and_evaluate, job): job for job in missing}
        try:
            for future in as_completed(waiting):
                try:
                    future.result()
                except KenthashError as error:
                    failures[waiting[future].out] = str(error)
                progress.update()
        except (KeyboardInterrupt, SystemExit):
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        except BrokenProcessPool as error:
            raise KenthashError(
                "a process that made a run was killed, perhaps because memory ran out: run the same command again, and "
                "what is finished is kept"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)  # after a stop nothing new begins
    return failures


@contextmanager
def _raising_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process by an exception, so that it ends its workers first."""
    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _set_up_worker() -> None:
    """What every worker process does first."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Ctrl-C is for the parent, which then ends it; what it has written is whole, and the run is resumed. tqdm's lock
    # between processes would be left over, and these have no need of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tqdm.set_lock(threading.RLock())
    os.environ["OMP_NUM_THREADS"] = "1"  # of the evaluation's kernels; torch has its own below
    import torch

    torch.set_num_threads(1)


def _end_with_parent() -> None:
    """However the parent ends, also by SIGKILL: without it nothing uses the result of this process."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def check_job(job: Job) -> None:
    """Before anything runs: its settings exist, and a run of other settings under the same name neither passes for this
    one nor is lost."""
    recipe = make_recipe(job.layer)
    if not (job.out / "recipe.yaml").is_file():
        return
    stored = stored_recipe(job.out / "recipe.yaml")
    if changed := [f.name for f in fields(recipe) if getattr(stored, f.name) != getattr(recipe, f.name)]:
        raise UsageError(
            f"{job.out}: was made with other settings ({', '.join(changed)}): choose another --out, or remove it"
        )


def _train_and_evaluate(job: Job) -> None:
    from kenthash.training.evaluate import evaluate_run
    from kenthash.training.train import train_run

    train_run(make_recipe(job.layer), job.out, resume=True, quiet=True, record=job.record)
    if job.evaluate:
        evaluate_run(job.out, figures=False)  # too many to look at, and drawing takes a second
