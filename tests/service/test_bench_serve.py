"""`kenthash bench serve`, on a small index."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from small_service import wait_until

from kenthash.bench.http_load import LoadResult
from kenthash.bench.monitor import WAKE_PERIOD, Monitor, ProcessSample, memory_trend
from kenthash.bench.search import BITS
from kenthash.bench.serve import RATE, _by_minute, _figures, bench_serve, render
from processes import PATIENCE


def test_figures() -> None:
    """By hand: a hundred answers of 1 to 100 ms in two seconds, half of them paid by the server's processor."""
    load = LoadResult([i / 1000 for i in range(1, 101)], errors=3, duration=2.0)
    figures = _figures(load, 0.05)
    assert figures["requests"] == 100 and figures["requests_a_second"] == 50 and figures["errors"] == 3
    assert figures["p50_ms"] == 50.5 and 99 <= figures["p99_ms"] <= 100 and figures["server_cpu_ms"] == 0.5


def test_figures_by_minute() -> None:
    """By hand: 1 ms in the first minute, 3 ms in the second, when the host took a tenth and woke sleepers 2 ms late;
    half a minute is left out."""
    load = LoadResult([0.001] * 60 + [0.003] * 60 + [9.0] * 30, list(range(150)), start=1000.0, duration=150.0)
    samples = [ProcessSample(1000.0 + t, 100 + t / 60, max(t - 60, 0) * 20, t * 200) for t in range(151)]
    wakes = [(1000.0 + t, 0.002 if t >= 60 else 0.0) for t in range(151)]
    assert _by_minute(load, Monitor(samples, wakes)) == {
        "p50_ms": [1.0, 3.0],
        "p99_ms": [1.0, 3.0],
        "wake_p99_ms": [0.0, 2.0],
        "stolen_percent": [0.0, 10.0],
    }
    assert _by_minute(load, Monitor()) == {"p50_ms": [1.0, 3.0], "p99_ms": [1.0, 3.0]}  # where there is no /proc
    assert memory_trend(samples) == {"start": 100, "end": 102.5, "a_minute": 1}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be held on a processor here")
def test_a_sleeper_is_late_when_its_processor_is_taken() -> None:
    """A process stopped for a third of a second: every wake due in that time comes after it, on each processor.

    Both processes read the same clock. Each processor whose thread has begun has one wake due in any stretch as long as
    the period, so all have gone past a moment when there are as many wakes in the stretch after it as processors.
    """
    code = f"""
import json, os, sys, time
from kenthash.bench.monitor import monitored

def all_are_past(moment):
    return sum(moment <= due < moment + {WAKE_PERIOD} for due, _ in list(monitor.wakes)) >= cores

cores = len(os.sched_getaffinity(0))
with monitored(os.getpid()) as monitor:
    while not all_are_past(time.perf_counter() - 0.5):  # not of one fixed moment: a thread may begin after it
        time.sleep(0.01)
    print(flush=True)
    stopped = float(sys.stdin.readline())
    while not all_are_past(stopped):
        time.sleep(0.01)
print(json.dumps([monitor.wakes, len(os.sched_getaffinity(0))]))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    threads = list(Path(f"/proc/{process.pid}/task").iterdir())
    wait_until(lambda: all(state_of(thread) == "T" for thread in threads))
    start = time.perf_counter()
    time.sleep(0.33)
    end = time.perf_counter()
    process.send_signal(signal.SIGCONT)
    wakes, cores = json.loads(process.communicate(f"{end}\n", timeout=PATIENCE)[0])
    late = [due + late - end for due, late in wakes if start <= due < end]
    assert len(late) >= cores * int((end - start) / WAKE_PERIOD) and min(late) >= 0
    assert cores == len(os.sched_getaffinity(0))  # only sleepers are held on one processor


def test_every_request_is_answered() -> None:
    result = bench_serve(items=2000, seconds=1)
    by_query = {name: figures for name, figures in result.items() if name.startswith("by ")}
    assert len(by_query) == 4 and all(figures["errors"] == 0 for figures in by_query.values())
    assert by_query[f"by id, {RATE:g} a second"]["requests"] >= RATE  # on a schedule: late, maybe, but all of them
    assert all(figures["p99_ms"] >= figures["p50_ms"] > 0 for figures in by_query.values())
    assert f"codes of {BITS} bits" in render(result) and "by words, one client" in render(result)


def children(pid: int) -> dict[int, str]:
    """The command line of each process that it has started."""
    commands = {}
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        with suppress(OSError):  # ended meanwhile
            commands[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    return commands


def at_work(pid: int) -> bool:
    try:
        return state_of(Path(f"/proc/{pid}")) not in "ZX"
    except OSError:
        return False


def state_of(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_no_process_behind(number: signal.Signals, tmp_path: Path) -> None:
    """Sent to the bench alone, while clients ask."""
    before = signal.signal(number, signal.default_int_handler)  # a job in the background inherits a deaf ear
    command = [sys.executable, "-m", "kenthash", "bench", "serve", "--items", "1000", "--seconds", "600"]
    bench = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    signal.signal(number, before)
    started: dict[int, str] = {}
    try:
        wait_until(lambda: any('"/search"' in log.read_text() for log in tmp_path.glob("kenthash-*/log")))
        started = children(bench.pid)
        for part in (" serve --index ", "spawn_main"):
            assert any(part in own for own in started.values())
        bench.send_signal(number)
        _, messages = bench.communicate(timeout=PATIENCE)
        assert bench.returncode not in (0, -number) and "Traceback" not in messages
        wait_until(lambda: not any(at_work(pid) for pid in started))
        assert not list(tmp_path.glob("kenthash-*"))
    finally:
        bench.kill()
        for pid in filter(at_work, started):
            os.kill(pid, signal.SIGKILL)
