"""Runs side by side: what happens when they are stopped from outside."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kenthash.errors import KenthashError
from kenthash.studies.grid import Job, run_all
from packs import write_pack
from processes import PATIENCE, after_code, wait_until

EPOCHS = 1_000_000  # never done


# Also where these tests run in the background of a shell, whose children ignore Ctrl-C.
HEED_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)"


def test_a_killed_process_is_told_in_one_line(tmp_path: Path) -> None:
    layer = {"data": str(write_pack(tmp_path / "pack", items=300)), "method": "dsph", "bits": 16, "epochs": EPOCHS}
    job = Job(tmp_path / "run", layer)
    errors = []

    def run() -> None:
        try:
            run_all([job, job])
        except KenthashError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    wait_until((job.out / "checkpoint" / "checkpoint.safetensors").is_file)
    workers = multiprocessing.active_children()
    assert len(workers) == 1  # the same run twice is one run
    workers[0].kill()
    thread.join(timeout=PATIENCE)
    assert errors and "was killed, perhaps because memory ran out" in errors[0]


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        (lambda process: os.killpg(process.pid, signal.SIGINT), 130),  # to all processes, as a terminal does
        (lambda process: process.send_signal(signal.SIGTERM), 143),  # to the parent alone, as `kill` does
        (lambda process: process.send_signal(signal.SIGKILL), -signal.SIGKILL),
    ],
    ids=["SIGINT", "SIGTERM", "SIGKILL"],
)
def test_signals_end_runs_that_wait_and_runs_that_go(
    tmp_path: Path, stop: Callable[[subprocess.Popen[str]], None], code: int
) -> None:
    pack, out = write_pack(tmp_path / "pack", items=300), tmp_path / "out"
    words = ["--data", str(pack), "--out", str(out), "--bits", "16,32,64", "--seeds", "1", "--set", f"epochs={EPOCHS}"]
    command = [sys.executable, "-m", "kenthash", "compare", "--methods", "dsph,dcph,kdph,kaph", *words]
    process = subprocess.Popen(
        after_code(HEED_CTRL_C, command), start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: list(out.glob("runs/*/checkpoint/checkpoint.safetensors")))
        stop(process)
        stderr = process.communicate(timeout=PATIENCE)[1]  # ends when the last process that could write has ended
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == code and "Traceback" not in stderr
    assert code < 0 or "leaked" not in stderr  # which the parent has no time for when it is killed
