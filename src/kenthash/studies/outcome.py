"""What a target of `kenthash reproduce` comes to: tables, plots, and sentences with the numbers in them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from kenthash.errors import UsageError
from kenthash.files import atomic_write
from kenthash.studies.drawing import save
from kenthash.studies.sheet import MISSING, Sheet


class LeftOut(UsageError):
    """The data has not what a target measures. `all` goes on without that target."""


@dataclass(frozen=True)
class Plot:
    name: str  # the stem of its files
    figure: Figure | None  # None where the files are there already
    caption: str


@dataclass(frozen=True)
class Outcome:
    target: str
    title: str
    measured: str  # what is measured, in two sentences
    paper: str  # what the paper says of it
    seen: list[str]  # sentences with computed numbers
    sheets: list[Sheet]
    plots: list[Plot] = field(default_factory=list)
    has_tables: bool = False  # their files are there already

    def write(self, folder: Path) -> None:
        """Every table as .md, .tex and .csv and every plot as .png and .svg."""
        for sheet in [] if self.has_tables else self.sheets:
            for suffix, text in sheet.forms().items():
                with atomic_write(folder / f"{sheet.name}.{suffix}", "w") as stream:
                    stream.write(text)
        for plot in self.plots:
            if plot.figure is not None:
                save(plot.figure, folder / plot.name)

    def to_json(self) -> dict[str, object]:
        """What it comes to, for `--json`."""
        return {"target": self.target, "seen": self.seen, "tables": [sheet.to_json() for sheet in self.sheets]}

    def text(self) -> str:
        """For a terminal."""
        tables = "\n".join(sheet.markdown() for sheet in self.sheets)
        return "\n".join([f"{self.title}\n", tables, *(f"- {line}" for line in self.seen)])


def mean(values: Iterable[float]) -> float:
    """Of the values that are not NaN; NaN where there are none."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def signed(value: float, digits: int = 4) -> str:
    """With a true minus sign, and a plus where it is above zero; a dash for NaN."""
    return MISSING if np.isnan(value) else f"{value:+.{digits}f}".replace("-", "−")
