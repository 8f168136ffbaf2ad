"""What /proc tells of a process and its machine while a bench runs; where there is no /proc, nothing."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

STEAL = 7  # the field of /proc/stat: time that the machine's host gave to others


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


@contextmanager
def watched(pid: int, samples: list[Sample]) -> Iterator[None]:
    """Look at a process every second."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            try:
                samples.append(_look(pid))
            except OSError:
                return
            stop.wait(1)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _look(pid: int) -> Sample:
    status, stat = Path(f"/proc/{pid}/status").read_text(), Path("/proc/stat").read_text()
    ticks = [int(field) for field in stat.partition("\n")[0].split()[1:9]]  # what follows is part of the first two
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
