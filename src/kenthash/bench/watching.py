"""What a process and its machine do while a bench runs, as far as the system tells."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

STEAL = 7  # the field of /proc/stat: time that the machine's host gave to others
NAP = 0.005  # seconds


@dataclass(frozen=True)
class Sample:
    at: float  # by time.perf_counter
    memory: float  # MB that are resident
    stolen: int  # ticks of all processors since the machine started
    ticks: int


def processor(pid: int) -> float:
    """Seconds of processor time that a process has had: what counts on a busy machine."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Watch:
    """A look at a process every second; and on each processor a thread that only sleeps, with how late it was woken:
    what keeps it waiting keeps a server waiting, too."""

    samples: list[Sample] = field(default_factory=list)
    naps: list[tuple[float, float]] = field(default_factory=list)  # when each was to end, and seconds until it had


@contextmanager
def watched(pid: int) -> Iterator[Watch]:
    watch, stop = Watch(), threading.Event()
    threads = [threading.Thread(target=_look_on, args=(pid, watch.samples, stop))]
    if hasattr(os, "sched_setaffinity"):
        cores = os.sched_getaffinity(0)
        threads += [threading.Thread(target=_nap_on, args=(core, watch.naps, stop)) for core in cores]
    for thread in threads:
        thread.start()
    try:
        yield watch
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _look_on(pid: int, samples: list[Sample], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            samples.append(_look(pid))
        except OSError:
            return
        stop.wait(1)


def _nap_on(core: int, naps: list[tuple[float, float]], stop: threading.Event) -> None:
    """Naps are due on a schedule as requests are: one second without a processor makes all late that fall into it."""
    os.sched_setaffinity(0, {core})  # of this thread alone
    due = time.perf_counter()
    while not stop.is_set():
        due += NAP
        time.sleep(max(due - time.perf_counter(), 0))
        naps.append((due, time.perf_counter() - due))


def _look(pid: int) -> Sample:
    status, stat = Path(f"/proc/{pid}/status").read_text(), Path("/proc/stat").read_text()
    ticks = [int(value) for value in stat.partition("\n")[0].split()[1:9]]  # what follows is part of the first two
    return Sample(time.perf_counter(), int(status.partition("VmRSS:")[2].split()[0]) / 1024, ticks[STEAL], sum(ticks))


def memory_trend(samples: Sequence[Sample]) -> dict[str, float]:
    """At the start and the end, and the trend of the second half."""
    if len(samples) < 4:
        return {}
    half = samples[len(samples) // 2 :]
    slope = np.polyfit([one.at / 60 for one in half], [one.memory for one in half], 1)[0]
    return {
        "start": round(samples[0].memory, 1),
        "end": round(samples[-1].memory, 1),
        "a_minute": round(float(slope), 2),
    }


def stolen(samples: Sequence[Sample], start: float, end: float) -> float:
    """The share of the processors' time that the host took away in between, in percent."""
    inside = [one for one in samples if start <= one.at <= end]
    if len(inside) < 2:
        return 0.0
    first, last = inside[0], inside[-1]
    return 100 * (last.stolen - first.stolen) / max(last.ticks - first.ticks, 1)
