"""Work on the shards of a data set, on this machine or on a Ray cluster.

A job turns each shard into one file. Files and the manifest are written by this process alone, wherever the work is
done: no machine but this one needs to reach the folder, a file appears whole, and the result of a shard that two
machines happened to work on is written once. A shard that is finished is not done again; one that cannot be read is
tried three times, then left out and listed, and tried again by the next run.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from kenthash.data.manifest import Manifest, ShardRecord
from kenthash.data.readers.samples import CONTROL, Sample, Shard
from kenthash.encoders.stream import BATCH
from kenthash.errors import DataError
from kenthash.files import atomic_write
from kenthash.progress import bar

log = logging.getLogger(__name__)

MAX_ID = 1024  # characters that an index takes
ATTEMPTS = 3  # to read a shard; a network may fail for a moment
PAUSE = 1.0  # seconds before the second attempt, twice as long before the next

Advance = Callable[[int], object]  # called with the number of pictures that have been worked on


@dataclass(frozen=True)
class ShardResult:
    content: bytes  # of the file
    items: int
    skipped: dict[str, str] = field(default_factory=dict)  # id -> reason


class ShardWorker(Protocol):
    def __call__(self, shard: Shard, advance: Advance) -> ShardResult: ...

    def close(self) -> None: ...


class ShardJob(Protocol):
    """Makes workers: on this machine, or, sent to another one, there."""

    def worker(self, threads: int | None) -> ShardWorker:
        """One that computes in so many threads; None for as many as there are processors."""


@dataclass(frozen=True)
class ShardOutcome:
    """What became of a shard: a result, or why there is none."""

    name: str
    result: ShardResult | None
    reason: str = ""


@dataclass
class WorkReport:
    shards: int = 0  # of the data set
    done: int = 0  # shards of this run
    items: int = 0  # of this run
    skipped: dict[str, str] = field(default_factory=dict)  # id -> reason, of this run
    failed: dict[str, str] = field(default_factory=dict)  # shard -> reason
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return (self.items + len(self.skipped)) / self.seconds if self.seconds else 0.0

    def failed_line(self) -> str:
        name, reason = next(iter(self.failed.items()))
        counted = f"{len(self.failed)} of {self.shards} shards could not be finished, such as {name} ({reason})"
        return f"{counted}: run this again to try them again"


def work_on_shards(
    shards: Sequence[Shard], job: ShardJob, manifest: Manifest, suffix: str, what: str, ray: str | None = None
) -> WorkReport:
    """Have all shards done that the manifest does not know yet. `ray` is the address of a cluster."""
    began, report = time.perf_counter(), WorkReport(len(shards))
    todo = {shard.name: shard for shard in shards if not manifest.has(shard.name, shard.state)}
    with bar(len(shards), what, "shards", initial=len(shards) - len(todo)) as progress:
        pictures_seen = 0

        def advance(pictures: int) -> None:
            nonlocal pictures_seen
            pictures_seen += pictures
            progress.set_postfix_str(
                f"{pictures_seen:,} pictures, {pictures_seen / (time.perf_counter() - began):.1f}/s"
            )

        if ray is None or not todo:
            outcomes = _work_here(list(todo.values()), job, advance)
        else:
            from kenthash.encoders.ray_work import work_on_ray

            outcomes = work_on_ray(list(todo.values()), job, ray, advance)
        for outcome in outcomes:
            shard, result = todo.pop(outcome.name), outcome.result
            progress.update()
            if result is None:
                report.failed[shard.name] = outcome.reason
                progress.write(f"failed {shard.name}: {outcome.reason}", file=sys.stderr)
                continue
            file = f"{shard.name}{suffix}"
            with atomic_write(manifest.path.parent / file) as stream:
                stream.write(result.content)
            reasons: dict[str, int] = {}
            for reason in result.skipped.values():
                reasons[reason] = reasons.get(reason, 0) + 1
            manifest.add(ShardRecord(shard.name, shard.state, file, result.items, reasons))
            log.info("shard %s is finished", shard.name)
            report.done += 1
            report.items += result.items
            report.skipped |= result.skipped
    report.failed |= dict.fromkeys(todo, "no machine has finished it")
    report.seconds = time.perf_counter() - began
    if not report.failed:
        manifest.complete(shard.name for shard in shards)
    return report


def _work_here(shards: Sequence[Shard], job: ShardJob, advance: Advance) -> Iterator[ShardOutcome]:
    if shards:
        with closing(job.worker(None)) as worker:
            for shard in shards:
                yield try_shard(worker, shard, advance)


def try_shard(worker: ShardWorker, shard: Shard, advance: Advance) -> ShardOutcome:
    """Work on a shard, again if it cannot be read; after the last attempt the reason is the outcome."""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            return ShardOutcome(shard.name, worker(shard, advance))
        except DataError as error:
            reason = str(error)
    return ShardOutcome(shard.name, None, reason)


def sample_batches(shard: Shard, skipped: dict[str, str]) -> Iterator[list[Sample]]:
    """The items of a shard in batches for an encoder. Those whose ids cannot be used are put down as skipped."""
    ids: set[str] = set()
    batch: list[Sample] = []
    for sample in shard.samples():
        if sample.id in ids:
            skipped[sample.id] = "its id occurs twice in the shard: the first was taken"
        elif CONTROL.search(sample.id):  # the name of a file
            reason = "its name is not UTF-8, or has control characters: rename the file"
            skipped[repr(sample.id)[1:-1]] = reason
        elif len(sample.id) > MAX_ID:
            skipped[sample.id] = f"its id has more than {MAX_ID:,} characters"
        else:
            ids.add(sample.id)
            batch.append(sample)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
