"""`kenthash reproduce`: one target, or all of them and a report."""

import sys

from kenthash.errors import UsageError
from kenthash.files import atomic_write
from kenthash.studies.outcome import LeftOut, Outcome
from kenthash.studies.report import render
from kenthash.studies.study import Study
from kenthash.studies.targets import TARGETS

ALL = "all"
LAST = "table1"  # the first of the report, but by far the longest to make


def reproduce(study: Study, target: str) -> list[Outcome]:
    """Make the missing runs of `target` (or of all), write its tables and figures into OUT/TARGET, return them.

    With `all`, OUT/report.html is written too, and again after every target, so that it can be read while the rest is
    being made; a target that this data has nothing for is left out with a line on standard error.
    """
    if target not in (*TARGETS, ALL):
        raise UsageError(f"there is no target '{target}': choose from {', '.join(TARGETS)}, or {ALL}")
    if study.epochs < 2:
        raise UsageError(f"--epochs {study.epochs}: at least 2 are needed to see a proxy move")
    if target != ALL:
        return [_make_target(study, target)]
    _ = study.groups  # a group file that is wrong is refused before the first run
    outcomes: dict[str, Outcome] = {}
    ordered: list[Outcome] = []
    for name in [*(name for name in TARGETS if name != LAST), LAST]:
        print(f"{name} ...", file=sys.stderr)
        try:
            outcomes[name] = _make_target(study, name)
        except LeftOut as reason:
            print(f"{name} is left out: {reason}", file=sys.stderr)
            continue
        ordered = [outcomes[name] for name in TARGETS if name in outcomes]
        with atomic_write(study.out / "report.html", "w") as stream:
            stream.write(render(study, ordered))
    return ordered


def _make_target(study: Study, name: str) -> Outcome:
    outcome = TARGETS[name](study)
    outcome.write(study.out / name)
    return outcome
