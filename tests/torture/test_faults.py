"""A system call that fails costs one clear line, never the index, and leaves no files behind."""

import json
from pathlib import Path

import pytest
from faults import OPERATIONS, attack_by_faults

from components import need_shim
from shim import compiled_shim


@pytest.fixture(autouse=True)
def shim() -> None:
    need_shim(compiled_shim)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_failing_system_call_is_one_clear_line(tmp_path: Path, name: str) -> None:
    step = 11 if name in ("backup", "create") else 3  # which make ten times as many calls
    outcomes = attack_by_faults(tmp_path, name, first=1 + len(name) % 3, step=step)
    assert outcomes.keys() == {"right"} and outcomes["right"] >= 9, json.dumps(outcomes, indent=1)


@pytest.mark.parametrize(("command", "call"), [("encode", 243), ("train", 74)])
def test_a_command_is_repeated_after_a_failing_system_call(tmp_path: Path, command: str, call: int) -> None:
    """One of the calls: on a finished batch, which is read again, and on TensorBoard's events. `make torture` fails all
    of them."""
    outcomes = attack_by_faults(tmp_path, command, first=call, step=10_000)
    assert outcomes.keys() == {"right"}, json.dumps(outcomes, indent=1)
