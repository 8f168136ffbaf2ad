"""`kenthash reproduce`: one target, or all of them and a report."""

import sys

from kenthash.codes import check_bits
from kenthash.errors import UsageError
from kenthash.files import atomic_write
from kenthash.studies.outcome import Outcome
from kenthash.studies.report import render
from kenthash.studies.study import Study
from kenthash.studies.targets import TARGETS

ALL = "all"


def reproduce(study: Study, target: str) -> list[Outcome]:
    """Make the missing runs of `target` (or of all), write its tables and figures into OUT/TARGET, return them.

    With `all`, OUT/report.html is written too, and again after every target, so that it can be read while the rest is
    being made.
    """
    if target not in (*TARGETS, ALL):
        raise UsageError(f"there is no target '{target}': choose from {', '.join(TARGETS)}, or {ALL}")
    for b in study.bits:
        check_bits(b)
    if study.epochs < 2:
        raise UsageError(f"--epochs {study.epochs}: at least 2 are needed to see a proxy move")
    if target != ALL:
        return [_make(study, target)]
    outcomes: list[Outcome] = []
    for name in _order(study):
        print(f"{name} ...", file=sys.stderr)
        outcomes.append(_make(study, name))
        ordered = sorted(outcomes, key=lambda outcome: list(TARGETS).index(outcome.target))
        with atomic_write(study.out / "report.html", "w") as stream:
            stream.write(render(study, ordered))
    return ordered


def _make(study: Study, name: str) -> Outcome:
    outcome = TARGETS[name](study)
    outcome.write(study.out / name)
    return outcome


def _order(study: Study) -> list[str]:
    """The long comparison last; topology only where the classes have groups."""
    names = [name for name in TARGETS if name != "table1"] + ["table1"]
    if study.groups is None:
        print(f"topology is left out: {study.data} has no groups.json and no --groups was given", file=sys.stderr)
        names.remove("topology")
    return names
