"""`kenthash leaderboard`: the results in any number of folders, own and other people's, as one page.

Results are ranked together only if they were measured by the same rules: the same data and split, protocol, tie rule
and version of the evaluator. What differs is refused and named. A row is one method with one recipe, over the seeds
that all rows have.
"""

import base64
import csv
import html
import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from matplotlib import rc_context

from kenthash.errors import DataError
from kenthash.files import read_json
from kenthash.methods import METHODS
from kenthash.studies.controls import CONTROLS, CONTROLS_FILE, REFERENCES
from kenthash.studies.published import beside_published
from kenthash.studies.results import Cell, Cells, Row, basis_of_test, cells_of, winners
from kenthash.studies.sheet import Sheet, html_page
from kenthash.studies.submission import DESCRIPTION, read_submission
from kenthash.studies.tables import OWN_PAIRS, draw_figure, has_maps, sheet_of
from kenthash.training.recipe import read_recipe

# What has to be the same, by the name in metrics.json, and what it is called in a message.
RULES = {
    "data_digest": "data (ids and labels)",
    "protocol": "protocol",
    "ties": "tie rule",
    "code_version": "version of the evaluator",
}
# Settings that tell the runs of one row apart, or where files were.
OWN = ("bits", "seed", "data")


@dataclass(frozen=True)
class Entry:
    """One evaluated run or submission."""

    folder: Path
    title: str  # of the method
    reference: str
    fidelity: str
    metrics: dict[str, Any]
    recipe: str  # as YAML, without `OWN`


@dataclass(frozen=True)
class Leaderboard:
    rows: list[Row]
    recipes: dict[str, str]  # by the name of a row
    bits: list[int]
    note: str
    published: Sheet | None

    def sheet(self) -> Sheet:
        return sheet_of(self.rows, self.bits, winners(self.rows), self.note)

    def page(self) -> str:
        """One HTML page that opens offline. Tables are sorted by a click on the head of a column."""
        script = (files("kenthash") / "studies" / "sort.js").read_text(encoding="utf-8")
        tables = [self.sheet()] + ([self.published] if self.published else [])
        tables_html = "".join(f'<div class="scroll" tabindex="0">{table.html()}</div>' for table in tables)
        recipes = "".join(
            f"<details><summary>{html.escape(name)}</summary><pre><code>{html.escape(text)}</code></pre></details>"
            for name, text in self.recipes.items()
        )
        header = f"""<h1>Leaderboard</h1>
<p class="basis">{html.escape(self.note)} Click on the head of a column to sort by it.</p>"""
        body = f"""<main>
<figure><img src="{self._curves()}" alt="Figures by code length, one line per row of the table"></figure>
{tables_html}
<h2>Recipes</h2>
{recipes}
</main>
<script>
{script}</script>"""
        return html_page("Leaderboard of cross-modal hashing", header, body)

    def _curves(self) -> str:
        stream = io.BytesIO()
        with rc_context({"svg.hashsalt": "kenthash"}):
            draw_figure(self.rows, self.bits).savefig(stream, format="svg", metadata={"Date": None})
        return f"data:image/svg+xml;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def make_leaderboard(folders: Sequence[Path]) -> Leaderboard:
    """Read every result below `folders`: runs of `kenthash compare` and `train`, and evaluated submissions."""
    entries = [entry for folder in folders for entry in _entries(folder)]
    if not entries:
        names = ", ".join(map(str, folders))
        raise DataError(
            f"{names}: no result below: `kenthash compare`, or `kenthash evaluate` of a run or of codes, makes"
        )
    _check_rules(entries)
    groups = _by_row(entries)
    shared = set.intersection(*({int(e.metrics["seed"]) for e in group} for group in groups.values()))
    if not shared:
        raise DataError("the rows have no seed in common: make one run of each method with the same seed")
    controls, missing = _controls(folders, entries, sorted(shared))
    rows = [
        *controls,
        *(
            Row(name, group[0].reference, group[0].fidelity, cells_of(_runs(group, shared)))
            for name, group in groups.items()
        ),
    ]
    bits = sorted({bits for row in rows for _, bits in row.cells})
    metrics = entries[0].metrics
    sample = metrics["i2t"]
    data = Path(str(metrics["data"])).name
    items = sum(int(sample.get(part, 0)) for part in ("database", "queries", "excluded"))
    sizes = f"{items:,} items, {sample['queries']:,} queries" if "map" in sample else "no labels"
    by_labels = has_maps(rows)
    note = (
        f"{data}, {sizes}; {'mAP@ALL of signed codes, ' if by_labels else ''}{metrics['ties']} ties, protocol "
        f"{metrics['protocol']}, seeds {', '.join(map(str, sorted(shared)))}."
        f"{' `real`: the same outputs before signing.' if by_labels else ''} {OWN_PAIRS}"
    )
    if controls:
        names = ", ".join(row.name for row in controls)
        note += f" Ranked by real values, no codes: {names}."
    if bold := basis_of_test(rows):
        note += f" Bold: {bold}."
    note += "".join(f" {line}" for line in missing)
    recipes = {name: group[0].recipe for name, group in groups.items()}
    return Leaderboard(rows, recipes, bits, note, beside_published(rows, bits, data, items) if by_labels else None)


def _entries(folder: Path) -> Iterator[Entry]:
    for path in sorted(folder.rglob("metrics.json")):
        run = path.parent
        if (run / DESCRIPTION).is_file():
            submission = read_submission(run)
            recipe = {"citation": submission.citation, "url": submission.url, **submission.recipe}
            entry = Entry(run, submission.name, submission.citation, "submitted", read_json(path), _yaml(recipe))
        elif (run / "recipe.yaml").is_file():
            stored = read_recipe(run / "recipe.yaml")
            method = METHODS.get(str(stored.get("method")))
            title = method.title if method else str(stored.get("method"))
            reference, fidelity = (method.citation.rsplit(", ", 1)[-1], method.fidelity) if method else ("", "")
            recipe = {name: value for name, value in stored.items() if name not in OWN}
            entry = Entry(run, title, reference, fidelity, read_json(path), _yaml(recipe))
        else:
            continue
        if missing := [name for name in (*RULES, "split", "bits", "seed") if name not in entry.metrics]:
            raise DataError(f"{path}: does not say its {missing[0]}: write it again with `kenthash evaluate`")
        yield entry


def _controls(folders: Sequence[Path], entries: Sequence[Entry], seeds: Sequence[int]) -> tuple[list[Row], list[str]]:
    """The real-valued controls of comparisons below `folders` that were measured by the same rules, and one line for
    each comparison whose controls are not shown."""
    rules = entries[0].metrics
    splits = {str(entry.metrics["seed"]): entry.metrics["split"] for entry in entries}
    cells: dict[str, Cells] = {}
    lines = []
    for path in sorted({path for folder in folders for path in folder.rglob(CONTROLS_FILE)}):
        record = read_json(path)
        own_splits = {str(seed): splits[str(seed)] for seed in seeds}
        differs = [name for rule, name in RULES.items() if record.get(rule) != rules[rule]]
        if not differs and not own_splits.items() <= record.get("splits", {}).items():
            differs = ["split"]
        if differs:
            lines.append(f"Controls of {path.parent.name} are left out: the {differs[0]} differs.")
            continue
        for name, by_bits in record["controls"].items():
            for bits, by_direction in by_bits.items():
                for direction, figures in by_direction.items():
                    of_seeds = {k: _chosen(v, seeds) for k, v in figures["instance_recall"].items()}
                    maps = _chosen(figures["map"], seeds)
                    recalls = {int(k): values for k, values in of_seeds.items()}
                    cells.setdefault(name, {})[direction, int(bits)] = Cell(maps, maps, recalls=recalls)
    for path in sorted({path for folder in folders for path in folder.rglob("table.csv")}):
        if not (path.parent / CONTROLS_FILE).is_file() and _names_controls(path):
            advice = "the same `kenthash compare` again keeps them for this page"
            lines.append(f"Real-valued controls of {path.parent.name} are not shown: {advice}.")
    return [Row(name, REFERENCES.get(name, "real"), "control", own) for name, own in cells.items()], lines


def _names_controls(path: Path) -> bool:
    """Whether the table of an earlier comparison has a row of a real-valued control."""
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    except (OSError, UnicodeDecodeError):
        return False
    return any(row.get("fidelity") == "control" and row.get("method") in CONTROLS for row in rows)


def _chosen(values: Sequence[float], seeds: Sequence[int]) -> tuple[float, ...]:
    return tuple(values[seed] for seed in seeds) if values else ()


def _runs(group: Sequence[Entry], seeds: set[int]) -> dict[int, list[Path]]:
    """The folders of a row by length, one per seed; lengths at which it has not all of the seeds are left out."""
    by_bits: dict[int, dict[int, Path]] = defaultdict(dict)
    for entry in group:
        by_bits[entry.metrics["bits"]][entry.metrics["seed"]] = entry.folder
    complete = {bits: by_seed for bits, by_seed in sorted(by_bits.items()) if seeds <= by_seed.keys()}
    return {bits: [by_seed[seed] for seed in sorted(seeds)] for bits, by_seed in complete.items()}


def _yaml(recipe: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)
    return text


def _check_rules(entries: Sequence[Entry]) -> None:
    """Refuse what was measured by other rules than the first result, or on another split of its seed."""
    first = entries[0]
    splits: dict[int, Entry] = {}
    for entry in entries:
        for rule, name in RULES.items():
            if entry.metrics[rule] != first.metrics[rule]:
                raise DataError(
                    f"{entry.folder} and {first.folder} cannot be ranked together: the {name} differs "
                    f"({entry.metrics[rule]} and {first.metrics[rule]}): leave one of them out"
                )
        other = splits.setdefault(entry.metrics["seed"], entry)
        if entry.metrics["split"] != other.metrics["split"]:
            raise DataError(
                f"{entry.folder} and {other.folder} cannot be ranked together: the split of seed "
                f"{entry.metrics['seed']} differs: leave one of them out"
            )


def _by_row(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The results of each row by its name: the method's, numbered where it has several recipes."""
    groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        same = groups[entry.title, entry.recipe]
        twin = next((e for e in same if all(e.metrics[n] == entry.metrics[n] for n in ("bits", "seed"))), None)
        if twin is not None:
            raise DataError(
                f"{entry.folder} and {twin.folder} are the same method, recipe, length and seed: leave one out"
            )
        same.append(entry)
    recipes: dict[str, int] = defaultdict(int)
    rows = {}
    for (title, _), group in groups.items():
        recipes[title] += 1
        rows[title if recipes[title] == 1 else f"{title} ({recipes[title]})"] = group
    return rows
