"""The fuzzers for some seconds each; `make fuzz` runs them longer, with other inputs each time."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from components import need

# The number of inputs, from one seed: after these, the coverage of a target grows by a hundredth in four times as many.
INPUTS = {"filters": 20_000, "uploads": 8_000, "metadata": 2_500, "packs": 400}


@pytest.mark.parametrize("target", INPUTS)
def test_a_fuzzer_finds_nothing(tmp_path: Path, target: str) -> None:
    need("atheris")
    # By way of a shell, which has little memory: libFuzzer limits the peak of its process, and Linux hands the peak of
    # the process that starts a command on to the command.
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    fuzz = [sys.executable, str(Path(__file__).with_name("fuzz.py")), target]
    fuzz += [f"-runs={INPUTS[target]}", "-seed=1"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    completed = subprocess.run(
        [*shell, *fuzz], env=environment, cwd=tmp_path, capture_output=True, text=True, errors="replace"
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    inputs = re.search(r"stat::number_of_executed_units: (\d+)", completed.stderr)
    assert inputs and int(inputs[1]) >= INPUTS[target]
