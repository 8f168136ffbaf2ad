"""The report of `data check`: as a value, as JSON, and as text in 80 columns."""

import textwrap
from dataclasses import asdict, dataclass
from typing import Any

from kenthash.data.dataset import DataProblem

WIDTH = 80
SHOWN = 5  # classes and pairs in the text; the JSON has all classes
EXAMPLES = 3
LAST_BIN = 10  # items with this many labels or more share a line


@dataclass(frozen=True)
class ClassCount:
    """A class, how many items have it, and how many other labels these have on average: ACL(c), see `check`."""

    name: str
    items: int
    acl: float


@dataclass(frozen=True)
class PairCount:
    """Two classes, how many items have both, and which share that is of the items of the rarer one."""

    first: str
    second: str
    items: int
    share: float


@dataclass
class DataReport:
    name: str
    items: int
    pictures: int | None  # None where the data set holds vectors only
    texts: int | None
    classes: list[ClassCount]  # the most frequent first
    labels_per_item: dict[int, int]  # number of labels -> items
    pairs: list[PairCount]  # the most frequent first
    licence: str
    notes: list[str]  # what the reader left out
    problems: list[DataProblem]
    pictures_checked: bool

    @property
    def usable(self) -> bool:
        return all(problem.kind != "error" for problem in self.problems)

    @property
    def mean_labels(self) -> float:
        return sum(labels * items for labels, items in self.labels_per_item.items()) / self.items

    @property
    def mean_acl(self) -> float:
        """The mean of ACL(c) over the classes that occur."""
        values = [counted.acl for counted in self.classes if counted.items]
        return sum(values) / len(values) if values else 0.0

    def to_json(self) -> dict[str, Any]:
        summary = {"usable": self.usable, "mean_labels": self.mean_labels, "mean_acl": self.mean_acl}
        return summary | asdict(self)

    def to_text(self) -> str:
        parts = [self._summary(), self._labels(), self._classes(), self._pairs(), self._notes(), self._problems()]
        return "\n\n".join(part for part in parts if part)

    def _summary(self) -> str:
        warnings = sum(problem.kind == "warning" for problem in self.problems)
        errors = len(self.problems) - warnings
        verdict = "usable" if self.usable else "not usable as it is"
        counts = [_count(errors, "error")] * (errors > 0) + [_count(warnings, "warning")] * (warnings > 0)
        pictures = "none here" if self.pictures is None else f"{self.pictures:,}"
        unopened = " (not opened)" if self.pictures and not self.pictures_checked else ""
        texts = "none here" if self.texts is None else f"{self.texts:,}"
        occurring = [counted for counted in self.classes if counted.items]
        lines = [
            f"{self.name}: {verdict}" + (f", {' and '.join(counts)}" if counts else ", nothing is wrong"),
            "",
            f"  items     {self.items:,}",
            f"  pictures  {pictures}{unopened}",
            f"  texts     {texts}",
            f"  classes   {len(self.classes):,}",
        ]
        if occurring:
            lines.append(f"  labels    {self.mean_labels:.2f} per item; mean ACL {self.mean_acl:.2f}")
        return "\n".join(lines)

    def _labels(self) -> str:
        if not self.classes:
            return ""
        bins: dict[str, int] = {}
        for labels in range(max(self.labels_per_item) + 1):
            name = str(labels) if labels < LAST_BIN else f"{LAST_BIN}+"
            bins[name] = bins.get(name, 0) + self.labels_per_item.get(labels, 0)
        top = max(bins.values())
        rows = [f"  {name:>3} {items:>10,}  {'#' * round(50 * items / top)}".rstrip() for name, items in bins.items()]
        return "\n".join(["labels per item", *rows])

    def _classes(self) -> str:
        occurring = [counted for counted in self.classes if counted.items]
        if not occurring:
            return ""
        by_acl = sorted(occurring, key=lambda counted: (-counted.acl, counted.name))
        few = SHOWN if len(occurring) >= 2 * SHOWN else len(occurring)
        groups = [("head", occurring[:few])]
        if few == SHOWN:
            groups += [("tail", occurring[-few:]), ("highest ACL", by_acl[:few]), ("lowest ACL", by_acl[-few:])]
        lines = [f"{'classes':<46}{'items':>10}{'share':>9}{'ACL':>8}"]
        for group, members in groups:
            for place, counted in enumerate(members):
                heading, name = group if place == 0 else "", _cut(counted.name, 28)
                share = counted.items / self.items
                lines.append(f"  {heading:<14}{name:<30}{counted.items:>10,}{share:>9.1%}{counted.acl:>8.2f}")
        return "\n".join(lines)

    def _pairs(self) -> str:
        if not self.pairs:
            return ""
        lines = [f"{'most frequent pairs':<46}{'items':>10}{'of the rarer':>17}"]
        for pair in self.pairs[:SHOWN]:
            names = f"{_cut(pair.first, 20)} + {_cut(pair.second, 20)}"
            lines.append(f"  {names:<44}{pair.items:>10,}{pair.share:>17.1%}")
        return "\n".join(lines)

    def _notes(self) -> str:
        return "\n".join(["notes", *(_wrap(line, "  - ") for line in self.notes)]) if self.notes else ""

    def _problems(self) -> str:
        lines = []
        for problem in sorted(self.problems, key=lambda problem: problem.kind):  # errors first
            lines.append(_wrap(problem.what, f"{problem.kind}: ", "  "))
            lines += [f"  {_cut(example, WIDTH - 2)}" for example in problem.examples[:EXAMPLES]]
            lines += ["  ..."] * (len(problem.examples) > EXAMPLES)
            lines.append(_wrap(problem.remedy, "  -> ", "     "))
        return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _cut(text: str, width: int) -> str:
    """Shortened in the middle: the end of a file name matters as much as its start."""
    plain = "".join(character if character.isprintable() else "?" for character in text)
    if len(plain) <= width:
        return plain
    half = (width - 3) // 2
    return plain[: width - 3 - half] + "..." + plain[-half:]


def _wrap(text: str, start: str, indent: str | None = None) -> str:
    blank = " " * len(start) if indent is None else indent
    return textwrap.fill(_cut(text, 600), WIDTH, initial_indent=start, subsequent_indent=blank, break_on_hyphens=False)
