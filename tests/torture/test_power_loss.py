"""What was acknowledged survives a loss of power at any moment; a missing flush would be noticed here."""

from collections import Counter
from pathlib import Path

import pytest
from power_loss import record_run, replay

from components import need_shim
from shim import compiled_shim


@pytest.fixture(autouse=True)
def shim() -> None:
    need_shim(compiled_shim)


def test_power_loss_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    outcomes = replay(*record_run(tmp_path, first=0, changes=12), mixtures=1, every=3)
    calls, acknowledged = outcomes.pop("system calls"), outcomes.pop("acknowledged changes")
    assert calls > 200 and acknowledged == 12
    assert outcomes.keys() == {"right"} and outcomes["right"] > 100


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_missing_flushes_are_found(tmp_path: Path, synchronous: str) -> None:
    """The same test finds losses where SQLite flushes too little."""
    outcomes: Counter[str] = replay(*record_run(tmp_path, 0, 12, synchronous), mixtures=0, every=3)
    assert any(outcome.startswith("lost") for outcome in outcomes)
