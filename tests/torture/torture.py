"""`make torture`: the attacks of the tests, longer. Prints the number of attempts by outcome; ends with 1 where one is
not right. Takes hours on a laptop; `python torture.py NAME ...` runs some of the attacks only, and KENTHASH_PART=20
(`make torture PART=20`) one in 20 of the attempts, which takes minutes."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from faults import COMMANDS, OPERATIONS, attack_by_faults
from power_loss import MEMORY, record_run, replay

TESTS = Path(__file__).parents[1]
PART = int(os.environ.get("KENTHASH_PART", "1"))
POWER_LOSS_RUNS = max(1, 20 // PART)
DAMAGED = 2000 // PART
TIMES = max(1, 20 // PART)  # as many sequences of operations, kills and crashes as the tests have
LARGE = (
    "search/test_rule_machine.py",
    "search/test_postgres_crashes.py",
    "search/test_milvus_lost.py",
    "search/test_durable.py::test_kills_lose_nothing",
)
COUNTS = {"system calls", "acknowledged changes"}  # of a power loss run: not outcomes
LIMITS = {"found by verify"}  # of damaged stores: what a search does not notice (docs/reliability.md)


def flushes() -> Counter[str]:
    """The table of docs/reliability.md: one run of 12 changes, as an index sets SQLite's `synchronous`, and with
    settings that flush too little, which has to be noticed: always all states, since a part of them may miss it."""
    total: Counter[str] = Counter()
    for synchronous in ("FULL", "NORMAL", "OFF"):
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            outcomes = replay(*record_run(Path(folder), 0, 12, synchronous), mixtures=1)
        calls, right = outcomes["system calls"], outcomes["right"]
        wrong = sum(n for outcome, n in outcomes.items() if outcome not in COUNTS) - right
        print(
            f"  synchronous={synchronous}, {calls:,} system calls: {right + wrong:,} different states, "
            f"{right:,} right, {wrong:,} lost, half or refused",
            flush=True,
        )
        if synchronous == "FULL":
            total += Counter({outcome: n for outcome, n in outcomes.items() if outcome not in COUNTS})
        else:
            total["right" if wrong else f"missing flushes of {synchronous} were not noticed"] += 1
    return total


def power_loss() -> Counter[str]:
    total = flushes()
    for run in range(POWER_LOSS_RUNS):
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            total += replay(*record_run(Path(folder), 1000 * run, 40), mixtures=4)
    return total


def faults() -> Counter[str]:
    total: Counter[str] = Counter()
    for name in (*OPERATIONS, *COMMANDS):
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            outcomes = attack_by_faults(Path(folder), name, 1, PART)
        print(f"  {name}: {sum(outcomes.values()):,} system calls failed", flush=True)
        total.update({outcome if outcome == "right" else f"{name} {outcome}": n for outcome, n in outcomes.items()})
    return total


def damage(target: str) -> Counter[str]:
    command = [sys.executable, str(TESTS / "search" / "damage.py"), target, "100000", str(DAMAGED)]
    result: dict[str, dict[str, int]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    total: Counter[str] = Counter()
    for outcome, number in result["counts"].items():
        total["right" if outcome == "refused" else outcome] += number
    return total


def sequences() -> Mapping[str, int]:
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-n", "0", *(str(TESTS / test) for test in LARGE)]
    completed = subprocess.run(command, env=os.environ | {"KENTHASH_TORTURE": str(TIMES)}, cwd=TESTS.parent)
    return {"right": 1} if completed.returncode == 0 else {"failed": 1}


ATTACKS: dict[str, Callable[[], Mapping[str, int]]] = {
    "flushes": flushes,
    "power-loss": power_loss,
    "faults": faults,
    "damaged-code-files": lambda: damage("codes"),
    "damaged-stores": lambda: damage("store"),
    "sequences": sequences,
}


def main() -> None:
    wrong = False
    for name in sys.argv[1:] or [name for name in ATTACKS if name != "flushes"]:  # which power-loss begins with
        print(f"{name} ...", flush=True)
        outcomes = ATTACKS[name]()
        print(f"{name}: {', '.join(f'{outcome}: {n:,}' for outcome, n in outcomes.items())}", flush=True)
        wrong |= bool(outcomes.keys() - COUNTS - LIMITS - {"right"})
    sys.exit(wrong)


if __name__ == "__main__":
    main()
