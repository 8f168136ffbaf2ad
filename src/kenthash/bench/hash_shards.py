"""`kenthash bench hash`: what a Ray cluster costs, compared with plain processes that share out the same shards.

Two `kenthash hash` processes, each bound to a processor of its own and to half of the shards, against one that has a
Ray cluster of two nodes do them all. Both get the same pictures and the same model; runs alternate, and the fastest of
each counts. What comes after the start, between the first shard's end and the last one's, is what a long job has.

Processor time is that of all processes which take part, Ray's own included: all that this process can see, in the
namespace that `scripts/ray_cluster.py` makes. Other load on the machine changes it little, unlike the rates.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kenthash.bench.encode import find_pictures, make_photos
from kenthash.data.manifest import read_manifest
from kenthash.errors import KenthashError

SHARD = 250  # pictures of a shard; those of img2dataset have 10,000
BAR = 0.9
SAMPLE_SECONDS = 0.1


def bench_hash(
    ray: str | None, pictures: Path | None = None, items: int = 4000, model: str = "light", rounds: int = 2
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "photos").mkdir()
        files = find_pictures(pictures, items) if pictures else make_photos(folder / "photos", items)
        shards = _write_shards(files, folder / "shards")
        halves = []
        for half in range(2):
            halves.append(folder / f"half{half}")
            halves[half].mkdir()
            for shard in shards[half::2]:
                (halves[half] / shard.name).hardlink_to(shard)
        plain, on_ray = _Fastest(), _Fastest()
        for turn in range(rounds):
            outs = [folder / f"plain{turn}-{half}" for half in range(2)]
            runs = [_start(data, model, out, half) for half, (data, out) in enumerate(zip(halves, outs, strict=True))]
            with _sampled({run.pid for run in runs}) as samples:
                seconds = max(map(_seconds, runs))
            plain.add(len(files), seconds, outs, samples)
            if ray is not None:
                outs = [folder / f"ray{turn}"]
                with _sampled(None) as samples:
                    seconds = _seconds(_start(folder / "shards", model, outs[0], None, "--ray", ray))
                on_ray.add(len(files), seconds, outs, samples)
    figures = plain.figures("two processes")
    if ray is None:
        return figures
    ratios = {
        "Ray / two processes: rate with the start": on_ray.rate / plain.rate,
        f"Ray / two processes: rate after the start (bar: {BAR})": on_ray.steady / plain.steady,
        f"two processes / Ray: processor time after the start (bar: {BAR})": plain.processor / on_ray.processor,
    }
    return figures | on_ray.figures("Ray on two nodes") | ratios


class _Fastest:
    """The best of several runs."""

    rate = steady = 0.0  # pictures per second
    processor = float("inf")  # seconds of a processor per picture, after the start

    def add(self, pictures: int, seconds: float, outs: list[Path], samples: list[tuple[float, float]]) -> None:
        self.rate = max(self.rate, pictures / seconds)
        steady = [_steady(out) for out in outs]
        self.steady = max(self.steady, sum(items / (last - first) for items, first, last in steady))
        start, end = min(first for _, first, _ in steady), max(last for _, _, last in steady)
        spent = _spent_until(samples, end) - _spent_until(samples, start)
        hashed = sum(items for time, items in _ends(outs) if start < time <= end)
        self.processor = min(self.processor, spent / hashed)

    def figures(self, name: str) -> dict[str, float]:
        return {
            f"{name}, pictures/s": self.rate,
            f"{name} after the start, pictures/s": self.steady,
            f"{name} after the start, processor ms per picture": 1000 * self.processor,
        }


def _write_shards(files: list[Path], folder: Path) -> list[Path]:
    folder.mkdir()
    shards = [folder / f"{start // SHARD:05d}.tar" for start in range(0, len(files), SHARD)]
    for number, shard in enumerate(shards):
        with tarfile.open(shard, "w") as archive:
            for file in files[number * SHARD : (number + 1) * SHARD]:
                archive.add(file, file.name)
    return shards


def _start(data: Path, model: str, out: Path, processor: int | None, *options: str) -> "subprocess.Popen[str]":
    """A process that hashes shards, on this one of the processors that there are."""
    command = [sys.executable, "-m", "kenthash", "hash", str(data), "--model", model, "--out", str(out), "--json"]
    available = sorted(os.sched_getaffinity(0))
    bind = None if processor is None else partial(os.sched_setaffinity, 0, {available[processor % len(available)]})
    return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, preexec_fn=bind)


def _seconds(run: "subprocess.Popen[str]") -> float:
    output, _ = run.communicate()
    if run.returncode:
        raise KenthashError(f"`{' '.join(map(str, run.args))}` failed")  # type: ignore[arg-type]
    return float(json.loads(output)["seconds"])


def _ends(outs: list[Path]) -> list[tuple[float, int]]:
    """When each shard was finished, and its number of pictures."""
    manifests = [(out, read_manifest(out)[1].values()) for out in outs]
    return sorted(
        ((out / record.file).stat().st_mtime, record.items) for out, records in manifests for record in records
    )


def _steady(out: Path) -> tuple[int, float, float]:
    """The number of pictures after the first shard, and when that shard and the last one were finished."""
    ends = _ends([out])
    return sum(items for _, items in ends[1:]), ends[0][0], ends[-1][0]


@contextmanager
def _sampled(roots: set[int] | None) -> Iterator[list[tuple[float, float]]]:
    """Points in time, and the processor time until then of these processes and all below them; None: of all but us."""
    samples: list[tuple[float, float]] = []
    stopped = threading.Event()

    def sample() -> None:
        spent: dict[int, float] = {}  # by process; those that have ended still count
        while True:
            spent |= _processor_seconds(roots)
            samples.append((time.time(), sum(spent.values())))
            if stopped.wait(SAMPLE_SECONDS):
                return

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        stopped.set()
        thread.join()


def _processor_seconds(roots: set[int] | None) -> dict[int, float]:
    """By process; see proc_pid_stat(5)."""
    parents, ticks = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            values = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(file.parent.name)
        parents[process], ticks[process] = int(values[1]), int(values[11]) + int(values[12])
    if roots is None:
        counted = parents.keys() - {os.getpid()}
    else:
        counted = roots & parents.keys()
        while more := {process for process, parent in parents.items() if parent in counted} - counted:
            counted |= more
    return {process: ticks[process] / os.sysconf("SC_CLK_TCK") for process in counted}


def _spent_until(samples: list[tuple[float, float]], moment: float) -> float:
    place = min(max(bisect_left(samples, (moment,)), 1), len(samples) - 1)
    (before, low), (after, high) = samples[place - 1 : place + 1]
    share = (moment - before) / (after - before)
    return low + min(max(share, 0.0), 1.0) * (high - low)
