"""`kenthash reproduce`: one target, or all of them and a report."""

import sys

from kenthash.errors import DataError, UsageError
from kenthash.files import atomic_write
from kenthash.methods import METHODS
from kenthash.studies.outcome import LeftOut, Outcome
from kenthash.studies.report import render
from kenthash.studies.study import Study
from kenthash.studies.targets import OF_OWN_PAIRS, PRACTICE, TARGETS
from kenthash.training.recipe import Recipe
from kenthash.training.short_texts import unlearned_short_texts

ALL = "all"
LAST = "table1"  # the first of the report, but by far the longest to make


def reproduce(study: Study, target: str) -> list[Outcome]:
    """Make the missing runs of `target` (or of all), write its tables and figures into OUT/TARGET, return them.

    With `all`, OUT/report.html is written too, and again after every target, so that it can be read while the rest is
    being made; a target that this data has nothing for is left out with a line on standard error.
    """
    if target not in (*TARGETS, *PRACTICE, ALL):
        raise UsageError(f"there is no target '{target}': choose from {', '.join((*TARGETS, *PRACTICE))}, or {ALL}")
    if study.label_fault and target not in OF_OWN_PAIRS:
        raise DataError(
            f"{study.data}: {study.label_fault}: what {target} measures is of shared labels; without them there are "
            f"{', '.join(OF_OWN_PAIRS)}"
        )
    if study.epochs < 2:
        raise UsageError(f"--epochs {study.epochs}: at least 2 are needed to see a proxy move")
    default = METHODS[Recipe.method]  # which these targets train
    if target in PRACTICE and (note := unlearned_short_texts([default], study.features, None)):
        print(note, file=sys.stderr)
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
    outcome = (TARGETS | PRACTICE)[name](study)
    outcome.write(study.out / name)
    return outcome
