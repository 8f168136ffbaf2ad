"""Several workers of one service: what they share, and what happens when one of them, or all, are lost."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from small_service import BITS, Place, Running, name, running, wait_until

from kenthash.bench.monitor import server_memory
from kenthash.search import Index
from kenthash.search.models import assign_model
from processes import PATIENCE

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers need Linux")


def children(process: int) -> list[int]:
    """Of a process; those that decode pictures are children of workers."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def answers(server: Running) -> bool:
    """Whether a new connection gets an answer, after those that a killed worker has taken with it."""
    try:
        answer = httpx.post(f"{server.url}/search", json={"id": name(0)}, timeout=PATIENCE)
    except httpx.TransportError:
        return False
    return answer.status_code == 200


def requests_counted(server: Running) -> int:
    text = httpx.get(f"{server.url}/metrics", timeout=PATIENCE).text
    return sum(int(float(value)) for value in re.findall(r'requests_total\{.*route="/search".*\} (\S+)', text))


@linux
def test_workers_are_replaced_counted_together_and_end_with_their_supervisor(place: Place) -> None:
    with running(place, "--workers", "2") as server:
        first = children(server.process.pid)
        assert len(first) == 2
        for number in range(1, 21):  # each by a connection of its own, of which some go to either
            assert answers(server) and requests_counted(server) == number
        os.kill(first[0], signal.SIGKILL)
        wait_until(lambda: first[0] not in (now := children(server.process.pid)) and len(now) == 2)
        wait_until(lambda: all(answers(server) for _ in range(10)))
        assert requests_counted(server) >= 30  # those of the lost worker as well
        assert "a worker has ended and is replaced" in server.log.read_text()
        url = server.url.rpartition(":")[2]
        command = [sys.executable, "-m", "kenthash", "serve", "--index", str(place.index), "--port", url]
        second = subprocess.run([*command, "--workers", "2"], capture_output=True, text=True, timeout=PATIENCE)
        assert second.returncode == 2 and "is in use" in second.stderr
        workers = children(server.process.pid)
        server.process.kill()
        wait_until(lambda: not any(map(is_alive, workers)))


@linux
def test_ctrl_c_ends_workers_by_their_supervisor_alone(place: Place) -> None:
    with running(place, "--workers", "2") as server:
        workers = children(server.process.pid)
        for worker in workers:
            os.kill(worker, signal.SIGINT)
        assert all(answers(server) for _ in range(10)) and children(server.process.pid) == workers
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == 0
        assert "Traceback" not in server.log.read_text()


@linux
def test_a_worker_more_takes_less_than_a_tenth_of_the_memory_of_one(place: Place, tmp_path: Path) -> None:
    """On an index whose file of codes alone is larger than that: no worker can have its own copy."""
    index, ids = tmp_path / "many.kh", [f"item {i:06}" for i in range(1_000_000)]
    with Index.create(index, BITS) as new:
        assign_model(new, place.model)
        new.add(ids, np.random.default_rng(0).integers(0, 256, (len(ids), BITS // 8), np.uint8))
        new.compact()
    (codes,) = tmp_path.glob("many.kh.*.codes")

    def memory(workers: int) -> float:
        with running(place, "--workers", str(workers), index=str(index), items=len(ids)) as server:
            for number in range(8 * workers):
                query = {"text": f"words {number}"} if number % 2 else {"id": ids[number]}
                assert httpx.post(f"{server.url}/search", json=query, timeout=PATIENCE).status_code == 200
            return server_memory(server.process.pid)

    one_worker, three_workers = memory(1), memory(3)
    assert codes.stat().st_size > 0.1 * one_worker
    assert (three_workers - one_worker) / 2 < 0.1 * one_worker


@linux
def test_a_worker_that_cannot_start_ends_the_service(place: Place, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kenthash", "serve", "--index", str(tmp_path / "none.kh"), "--workers", "2"]
    ended = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1 and ended.stdout == ""
    assert [
        line for line in ended.stderr.splitlines() if "there is no such" in line
    ] and "Traceback" not in ended.stderr
