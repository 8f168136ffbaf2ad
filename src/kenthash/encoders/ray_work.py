"""Work on shards by the actors of Ray Data: one per processor of the cluster, or per GPU, each with a model of its own.

Ray Data hands out one shard at a time, waits where results are not taken (back-pressure), and gives the shard of a
machine that was lost to another one. A shard on which workers die again and again is given up. Results come back to the
process that called, which writes them.

The nodes need kenthash with the extra `ray`, in the same version, and access to the shards; models are sent to them.
"""

import logging
import os
import socket
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from importlib.metadata import version
from typing import Any

import numpy as np

from kenthash.data.pictures import PIPELINE
from kenthash.data.readers.samples import Shard
from kenthash.encoders.shard_work import ATTEMPTS, Advance, ShardJob, ShardOutcome, ShardResult, try_shard
from kenthash.errors import KenthashError, UsageError

VERSION = f"{version('kenthash')}, pictures {PIPELINE}"
CONNECT_SECONDS = 5.0


def work_on_ray(shards: Sequence[Shard], job: ShardJob, address: str, advance: Advance) -> Iterator[ShardOutcome]:
    """The outcomes of the shards, in the order in which they are finished. `address` is host:port, or `auto` for the
    cluster that this machine belongs to."""
    ray = _connect(address)
    with redirect_stdout(sys.stderr), ExitStack() as ended:  # Ray prints what happens to its nodes
        ended.callback(ray.shutdown)
        try:
            yield from _run(ray, shards, job, advance)
        except ray.exceptions.RayError as error:
            first: BaseException = error
            while first.__cause__ is not None:  # what Ray's own errors were made of
                first = first.__cause__
            if isinstance(first, KenthashError):
                raise type(first)(f"Ray at {address}: {first}") from error
            reason = " ".join(str(first).split())
            raise KenthashError(f"Ray at {address}: {type(first).__name__}: {reason[:300]}") from error


def _run(ray: Any, shards: Sequence[Shard], job: ShardJob, advance: Advance) -> Iterator[ShardOutcome]:
    data, resources = ray.data, ray.cluster_resources()
    processors, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    if processors < 1:
        raise UsageError("the Ray cluster has no processors: start a node with `ray start --address=...`")
    workers, each = (gpus, max(1, processors // gpus)) if gpus else (processors, 1)
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.execution_options.preserve_order = False
    this_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    attempts = ray.remote(num_cpus=0, scheduling_strategy=this_node)(_Attempts).remote()
    source = data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
    results = source.map_batches(
        _Actor,
        batch_size=1,
        compute=data.ActorPoolStrategy(min_size=1, max_size=workers, initial_size=min(workers, len(shards))),
        num_cpus=each,
        num_gpus=1 if gpus else None,
        fn_constructor_args=(ray.put(job), each, VERSION, attempts),
    )
    for row in results.iter_rows():
        result = None
        if not row["reason"]:
            skipped = dict(zip(row["skipped"].tolist(), row["reasons"].tolist(), strict=True))
            result = ShardResult(row["content"], int(row["items"]), skipped)
            advance(result.items + len(skipped))
        yield ShardOutcome(str(row["name"]), result, str(row["reason"]))


class _Attempts:
    """Counts how often each shard was begun: Ray begins one again, without end, whose worker has died."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def begin(self, shard: str) -> int:
        self.counts[shard] += 1
        return self.counts[shard]


class _Actor:
    """A worker. Ray Data calls it with a batch of one shard."""

    def __init__(self, job: Any, threads: int, version: str, attempts: Any) -> None:
        import ray

        if version != VERSION:
            raise UsageError(f"a node of the cluster has kenthash {VERSION}, this machine {version}: install the same")
        own: ShardJob = ray.get(job)
        self.worker, self.attempts = own.worker(threads), attempts

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        import ray

        shard: Shard = batch["shard"][0]
        if ray.get(self.attempts.begin.remote(shard.name)) > ATTEMPTS:
            outcome = ShardOutcome(shard.name, None, f"{ATTEMPTS} workers have died on it")
        else:
            outcome = try_shard(self.worker, shard, lambda pictures: None)
        result = outcome.result or ShardResult(b"", 0)
        return {
            "name": [outcome.name],
            "reason": [outcome.reason],
            "content": np.array([result.content], object),
            "items": [result.items],
            "skipped": [np.array(list(result.skipped), object)],
            "reasons": [np.array(list(result.skipped.values()), object)],
        }


def _connect(address: str) -> Any:
    host, _, port = address.rpartition(":")
    if address != "auto":
        if not host or not port.isdecimal():
            raise UsageError(f"--ray {address}: give host:port, as `ray start --head` prints it, or auto")
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except OSError as error:  # Ray itself would try for minutes
            raise KenthashError(f"Ray at {address}: does not answer: {error.strerror or error}") from error
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what matters is raised as well
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # or it would print some of them when this process ends
    import ray
    import ray.data
    import ray.util.scheduling_strategies

    warnings.filterwarnings("ignore", module=r"ray\.")
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise KenthashError(
            f"Ray at {address}: cannot be joined from here: {' '.join(str(error).split())[:200]}: "
            "run this on a machine of the cluster"
        ) from error
    return ray
