"""Monitoring of a process and its machine while a bench runs, as far as the system reports it."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

STEAL = 7  # the column of /proc/stat with the time that the host of a virtual machine gave to others
WAKE_PERIOD = 0.005  # seconds


@dataclass(frozen=True)
class ProcessSample:
    """The state of the process and of all processors at one moment."""

    at: float  # by time.perf_counter
    memory: float  # resident MB
    stolen: int  # clock ticks of all processors since the machine started
    ticks: int


@dataclass
class Monitor:
    """One sample of the process per second. On each processor a thread wakes up on a schedule and records how late it
    was: what delays that thread delays a server on the same machine, too."""

    samples: list[ProcessSample] = field(default_factory=list)
    wakes: list[tuple[float, float]] = field(default_factory=list)  # (when due by time.perf_counter, seconds late)


@contextmanager
def monitored(pid: int) -> Iterator[Monitor]:
    """Monitor a process within a `with` block."""
    monitor, stop = Monitor(), threading.Event()
    threads = [threading.Thread(target=_take_samples, args=(pid, monitor.samples, stop))]
    if hasattr(os, "sched_setaffinity"):
        cores = os.sched_getaffinity(0)
        threads += [threading.Thread(target=_wake_on_schedule, args=(core, monitor.wakes, stop)) for core in cores]
    for thread in threads:
        thread.start()
    try:
        yield monitor
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _take_samples(pid: int, samples: list[ProcessSample], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            samples.append(_sample(pid))
        except OSError:  # the process has ended, or the system has no /proc
            return
        stop.wait(1)


def _wake_on_schedule(core: int, wakes: list[tuple[float, float]], stop: threading.Event) -> None:
    """Wakes are due on a fixed schedule, as requests are: a second without a processor delays all that fall into it."""
    os.sched_setaffinity(0, {core})  # of this thread alone
    due = time.perf_counter()
    while not stop.is_set():
        due += WAKE_PERIOD
        time.sleep(max(due - time.perf_counter(), 0))
        wakes.append((due, time.perf_counter() - due))


def _sample(pid: int) -> ProcessSample:
    status, stat = Path(f"/proc/{pid}/status").read_text(), Path("/proc/stat").read_text()
    ticks = [int(value) for value in stat.partition("\n")[0].split()[1:9]]  # later columns are part of the first two
    return ProcessSample(
        time.perf_counter(), int(status.partition("VmRSS:")[2].split()[0]) / 1024, ticks[STEAL], sum(ticks)
    )


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far, which depends little on other load; 0 where it is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from _with_children(int(child))


def server_cpu_seconds(pid: int) -> float:
    """As `cpu_seconds`, of a server and of all processes that it has started."""
    return sum(map(cpu_seconds, _with_children(pid)))


def server_memory(pid: int) -> float:
    """Bytes of memory that a server and its workers take together. Without processes that decode pictures, which one
    worker starts in advance, and several when they are needed.

    Memory of no file that several share counts for each by its part. Pages of a file, such as a library or the codes,
    count once and in full, although processes that have nothing to do with the server may use them as well: otherwise
    the result would depend on what else is running.
    """
    anonymous, files = 0, dict[str, int]()
    for process in _with_children(pid):
        if b"kenthash.data.decoding" in Path(f"/proc/{process}/cmdline").read_bytes():
            continue
        total = Path(f"/proc/{process}/smaps_rollup").read_text()
        anonymous += sum(int(total.partition(f"\n{name}:")[2].split()[0]) for name in ("Pss_Anon", "SwapPss"))
        for path, size in _file_pages(process).items():
            files[path] = max(size, files.get(path, 0))
    return 1024.0 * (anonymous + sum(files.values()))


def _file_pages(pid: int) -> dict[str, int]:
    """Kilobytes of each mapped file that are in memory, without pages that the process has changed for itself."""
    sizes, path = Counter[str](), ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, value, *fields = line.split(maxsplit=5)
        if not name.endswith(":"):  # a mapping: addresses, permissions, offset, device, inode, and the path of a file
            path = fields[-1] if len(fields) == 4 else ""
        elif name == "Rss:":
            sizes[path] += int(value)
        elif name == "Anonymous:":
            sizes[path] -= int(value)
    return sizes


def memory_trend(samples: Sequence[ProcessSample]) -> dict[str, float]:
    """MB at the start and at the end, and the slope per minute over the second half."""
    if len(samples) < 4:
        return {}
    half = samples[len(samples) // 2 :]
    slope = np.polyfit([sample.at / 60 for sample in half], [sample.memory for sample in half], 1)[0]
    return {
        "start": round(samples[0].memory, 1),
        "end": round(samples[-1].memory, 1),
        "a_minute": round(float(slope), 2),
    }


def stolen_percent(samples: Sequence[ProcessSample], start: float, end: float) -> float:
    """The share of the processors' time between `start` and `end` that the host gave to others."""
    inside = [sample for sample in samples if start <= sample.at <= end]
    if len(inside) < 2:
        return 0.0
    first, last = inside[0], inside[-1]
    return 100 * (last.stolen - first.stolen) / max(last.ticks - first.ticks, 1)
