"""The fuzzers for a moment each; `make fuzz` runs them longer."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from components import need

SECONDS = 15  # of each: a minute in all


@pytest.mark.parametrize("target", ["filters", "uploads", "metadata", "packs"])
def test_a_fuzzer_finds_nothing(tmp_path: Path, target: str) -> None:
    need("atheris")
    # By way of a shell, which has little memory: libFuzzer limits the peak of its process, and Linux hands the peak of
    # the process that starts a command on to the command.
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    fuzz = [sys.executable, str(Path(__file__).with_name("fuzz.py")), target, f"-max_total_time={SECONDS}"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    completed = subprocess.run(
        [*shell, *fuzz], env=environment, cwd=tmp_path, capture_output=True, text=True, errors="replace"
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    inputs = re.search(r"stat::number_of_executed_units: (\d+)", completed.stderr)
    assert inputs and int(inputs[1]) > 1
