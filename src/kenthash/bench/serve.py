"""`kenthash bench serve`: the real server on an index of a million codes, with clients on the same machine.

Requests by id measure the engine and HTTP alone, at a fixed rate and as fast as possible. Requests by words, each new
to the server, include the light encoder. The server's memory is recorded meanwhile.
"""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from kenthash.bench.http_load import LoadResult, run_load
from kenthash.bench.monitor import (
    Monitor,
    cpu_seconds,
    memory_trend,
    monitored,
    server_cpu_seconds,
    server_memory,
    stolen_percent,
)
from kenthash.bench.search import BITS, make_codes
from kenthash.errors import KenthashError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.search import Index

Times = NDArray[np.float64]

CLIENTS, RATE = 32, 300.0
K = 24  # as the page requests
QUERIES = 200  # different ones per client
WORDS = ["dog", "cat", "horse", "boat", "lamp", "river", "child", "woman", "kite", "tree", "house", "bridge", "beach",
         "night", "red", "green", "small", "old", "two", "three", "behind", "under", "near", "holding"]  # fmt: skip


def bench_serve(items: int = 1_000_000, seconds: float = 10.0, minutes: float = 0.0) -> dict[str, Any]:
    """Figures of each kind of request. `minutes` lengthens the run at the fixed rate, during which the server's memory
    and the machine are monitored."""
    with _ended_by_signals(), tempfile.TemporaryDirectory(prefix="kenthash-bench-") as folder:
        index, model = _index(Path(folder), items), _model(Path(folder))
        with _server(index, model, Path(folder) / "log") as (host, port, process):
            result: dict[str, Any] = {"items": items, "clients": CLIENTS}
            run_load(host, port, _by_id(items, 9), 2)  # warms up connections and the disk's caches

            def measure(
                name: str, bodies: list[list[bytes]], for_seconds: float, rate: float | None = None
            ) -> LoadResult:
                before = cpu_seconds(process.pid)
                load = run_load(host, port, bodies, for_seconds, rate)
                result[name] = _figures(load, cpu_seconds(process.pid) - before)
                return load

            with monitored(process.pid) as monitor:
                load = measure(f"by id, {RATE:g} a second", _by_id(items, 0), max(seconds, 60 * minutes), RATE)
            if minutes >= 2:
                result["the same by minute"] = _by_minute(load, monitor)
            measure("by id, as fast as it goes", _by_id(items, 1), seconds)
            measure("by words, one client", _by_words(1, 2), seconds)
            measure("by words, as fast as it goes", _by_words(CLIENTS, 3), seconds)
            result["memory, MB"] = memory_trend(monitor.samples)
    return result


def bench_workers(workers: int, items: int = 1_000_000, seconds: float = 5.0, rounds: int = 4) -> dict[str, Any]:
    """Requests by id, as fast as they go, to a server with one worker and to one with several, on the same index, in
    turns; the fastest turn of each counts, with its times. Memory is that of all processes of a server together."""
    with _ended_by_signals(), tempfile.TemporaryDirectory(prefix="kenthash-bench-") as name, ExitStack() as servers:
        folder = Path(name)
        index, model = _index(folder, items), _model(folder)
        started, memory = {}, {}
        for number in (1, workers):  # alone first: two servers would share the mapped codes
            with _server(index, model, folder / f"log {number}", number) as (host, port, process):
                run_load(host, port, _by_id(items, 9), seconds)
                memory[number] = server_memory(process.pid) / 1e6
        for number in (1, workers):
            started[number] = servers.enter_context(_server(index, model, folder / f"log {number}", number))
            run_load(*started[number][:2], _by_id(items, 9), 2)
        best: dict[int, dict[str, float]] = {}
        for turn in range(rounds):
            for number, (host, port, process) in started.items():
                before = server_cpu_seconds(process.pid)
                load = run_load(host, port, _by_id(items, turn), seconds)
                figures = _figures(load, server_cpu_seconds(process.pid) - before)
                if number not in best or figures["requests_a_second"] > best[number]["requests_a_second"]:
                    best[number] = figures
    one_worker, all_workers = (best[number]["requests_a_second"] for number in (1, workers))
    return {
        "items": items,
        "clients": CLIENTS,
        "one worker": best[1] | {"memory_mb": round(memory[1])},
        f"{workers} workers": best[workers] | {"memory_mb": round(memory[workers])},
        "ratios": {
            "requests (bar on 2 cores: 1.6)": round(all_workers / one_worker, 2),
            "p99": round(best[workers]["p99_ms"] / best[1]["p99_ms"], 2),
            "memory per worker more (bar: 0.1)": round((memory[workers] / memory[1] - 1) / (workers - 1), 3),
        },
    }


def _index(folder: Path, items: int) -> Path:
    codes, _ = make_codes(items, 1, "clustered")
    path = folder / "bench.kh"
    with Index.create(path, BITS) as index:
        for start in range(0, items, 250_000):
            part = codes[start : start + 250_000]
            index.add([_name(i) for i in range(start, start + len(part))], part)
        index.compact()
    return path


def _model(folder: Path) -> Path:
    """An untrained model, which takes as long as a trained one."""
    from kenthash.model.network import HashNetwork

    head = HeadConfig()
    HashNetwork(HasherConfig(BITS, 1280, 384, head, head, "light")).save(folder / "model")
    return folder / "model"


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process by an exception as Ctrl-C does, so that the server it has started ends too,
    and its folder is removed."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _server(index: Path, model: Path, log: Path, workers: int = 1) -> Iterator[tuple[str, int, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "kenthash", "serve", "--index", str(index), "--model", str(model)]
    command += ["--port", "0", "--json", "--workers", str(workers)]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise KenthashError(f"the server did not start: {log.read_text()[-500:].strip()}")
            url = json.loads(line)["url"]
            parts = urlsplit(url)
            yield str(parts.hostname), int(parts.port or 0), process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except BaseException:  # it does not end in time, or the user presses Ctrl-C again
                process.kill()
                raise


def _name(number: int) -> str:
    return f"item {number:09}"


def _by_id(items: int, seed: int) -> list[list[bytes]]:
    numbers = np.random.default_rng(seed).integers(0, items, (CLIENTS, QUERIES))
    return [[json.dumps({"id": _name(number), "k": K}).encode() for number in own] for own in numbers]


def _by_words(clients: int, seed: int) -> list[list[bytes]]:
    """Eight random words each, so that no two requests are the same."""
    rng = np.random.default_rng(seed)
    return [
        [json.dumps({"text": " ".join(rng.choice(WORDS, 8)), "k": K}).encode() for _ in range(40 * QUERIES // clients)]
        for _ in range(clients)
    ]


def _figures(load: LoadResult, server_seconds: float) -> dict[str, float]:
    times = 1e3 * np.array(load.seconds)
    p50, p99 = np.percentile(times, (50, 99))
    return {
        "requests": len(times),
        "requests_a_second": round(len(times) / load.duration, 1),
        "p50_ms": round(float(p50), 2),
        "p99_ms": round(float(p99), 2),
        "max_ms": round(float(times.max()), 2),
        "server_cpu_ms": round(1e3 * server_seconds / len(times), 2),
        "errors": load.errors,
    }


def _by_minute(load: LoadResult, monitor: Monitor) -> dict[str, list[float]]:
    """p50 and p99 of the requests due in each whole minute, how late the machine woke a sleeping thread meanwhile, and
    the share of the processors' time that its host gave to others."""
    minutes = range(round(load.duration) // 60)
    answers = _percentiles(np.array(load.due), np.array(load.seconds), minutes)
    result = {"p50_ms": [p50 for p50, _ in answers], "p99_ms": [p99 for _, p99 in answers]}
    if monitor.wakes:
        due, late = np.transpose(monitor.wakes)
        result["wake_p99_ms"] = [p99 for _, p99 in _percentiles(due - load.start, late, minutes)]
    if monitor.samples:
        starts = [load.start + 60 * m for m in minutes]
        result["stolen_percent"] = [round(stolen_percent(monitor.samples, start, start + 60), 1) for start in starts]
    return result


def _percentiles(due: Times, seconds: Times, minutes: range) -> list[tuple[float, float]]:
    """p50 and p99 in milliseconds of what was due in each minute."""
    pairs = [np.percentile(1e3 * seconds[due // 60 == m], (50, 99)) for m in minutes]
    return [(round(float(p50), 1), round(float(p99), 1)) for p50, p99 in pairs]


def render(result: dict[str, Any]) -> str:
    lines = [f"{result['items']:,} codes of {BITS} bits, k = {K}, {result['clients']} clients on the same machine"]
    for name, figures in result.items():
        if isinstance(figures, dict):
            lines.append(
                f"{name:<30} " + "  ".join(f"{key} {_joined_numbers(value)}" for key, value in figures.items())
            )
    return "\n".join(lines)


def _joined_numbers(value: float | list[float]) -> str:
    return " ".join(f"{number:,}" for number in (value if isinstance(value, list) else [value]))
