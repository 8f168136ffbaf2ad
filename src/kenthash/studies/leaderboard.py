"""`kenthash leaderboard`: the results in any number of folders, own and other people's, as one page.

Results are ranked together only if they were measured by the same rules: the same data and split, protocol, tie rule
and version of the evaluator. What differs is refused and named. A row is one method with one recipe, over the seeds
that all rows have.
"""

import base64
import csv
import html
import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from matplotlib import rc_context

from kenthash.errors import DataError
from kenthash.studies.controls import CONTROLS, CONTROLS_FILE, REFERENCES
from kenthash.studies.entries import Entry, entries_below, read_controls
from kenthash.studies.published import beside_published
from kenthash.studies.results import MEAN, Cell, Cells, Row, basis_of_test, cells_of, winners, with_mean
from kenthash.studies.sheet import Sheet, html_page, prose
from kenthash.studies.tables import OWN_PAIRS, RECALL_K, TASKS, Winners, draw_figure, has_maps, sheet_of

# What has to be the same, by the name in metrics.json, and what it is called in a message.
RULES = {
    "data_digest": "data (ids and labels)",
    "protocol": "protocol",
    "ties": "tie rule",
    "code_version": "version of the evaluator",
}
# Of each task: the head of its table, and what is asked.
BLOCKS = {
    MEAN: ("Both directions", "The mean of both directions."),
    "i2t": ("Image → text", "Pictures are the queries, and texts are ranked."),
    "t2i": ("Text → image", "Texts are the queries, and pictures are ranked."),
}
FIDELITY = (
    "`Fidelity`: `code` follows the authors' public code, `paper` their paper, `reconstruction` fills in what that "
    "leaves open, `own` is of kenthash itself, `control` learns no hash by labels, `submitted` was made elsewhere and "
    "is described as its authors do."
)
AGAIN = "kenthash train --recipe recipe.yaml --data DATA --bits 32 --seed 0 --out RUN"
NAMED = 4  # settings that tell two recipes of a method apart, at most


@dataclass(frozen=True)
class Leaderboard:
    rows: list[Row]
    recipes: dict[str, str]  # by the name of a row
    differences: dict[str, str]  # of rows that are a further recipe of a method: how it differs from the first
    bits: list[int]
    won: Winners
    note: str
    published: Sheet | None

    def sheet(self) -> Sheet:
        return sheet_of(self.rows, self.bits, self.won, self.note)

    def page(self) -> str:
        """One HTML page that opens offline. Tables are sorted by a click on the head of a column."""
        script = (files("kenthash") / "studies" / "sort.js").read_text(encoding="utf-8")
        header = f"""<h1>Leaderboard</h1>
<p class="basis">{prose(self.note)}</p>
<p class="basis">{prose(FIDELITY)} Click on the head of a column to sort by it.</p>"""
        body = f"""<main>
<div class="scroll" tabindex="0"><figure>
<img src="{self._curves()}" alt="Figures by code length, one line per row of the table">
</figure></div>
{"".join(self._blocks())}
<h2>Recipes</h2>
<p>The settings behind each row. One that was trained by kenthash can be saved as recipe.yaml and made again:</p>
<pre><code>{AGAIN}</code></pre>
{self._recipes()}
</main>
<script>
{script}</script>"""
        return html_page("Leaderboard of cross-modal hashing", header, body, wide=True)

    def _blocks(self) -> Iterator[str]:
        """A table for each task, and the published figures."""
        whole = self.sheet()
        for task, (title, caption) in BLOCKS.items():
            lines = [line[1:] for line in whole.rows if line[0] == TASKS[task]]
            yield _block(title, Sheet(whole.head[1:], lines, caption))
        if self.published:
            yield _block("As printed, and here", self.published)

    def _recipes(self) -> str:
        lines = []
        for name, text in self.recipes.items():
            differs = self.differences.get(name)
            title = html.escape(name) + (f' <span class="basis">{html.escape(differs)}</span>' if differs else "")
            lines.append(f"<details><summary>{title}</summary><pre><code>{html.escape(text)}</code></pre></details>")
        return "\n".join(lines)

    def _curves(self) -> str:
        stream = io.BytesIO()
        with rc_context({"svg.hashsalt": "kenthash"}):
            draw_figure(self.rows, self.bits).savefig(stream, format="svg", metadata={"Date": None})
        return f"data:image/svg+xml;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def make_leaderboard(folders: Sequence[Path]) -> Leaderboard:
    """Read every result below `folders`: runs of `kenthash compare` and `train`, and evaluated submissions."""
    entries = [entry for folder in folders for entry in entries_below(folder)]
    if not entries:
        names = ", ".join(map(str, folders))
        raise DataError(f"{names}: no result below: make one with `kenthash compare`, `train` or `evaluate --codes`")
    _check_rules(entries)
    groups = _by_row(entries)
    shared = set.intersection(*({int(e.metrics["seed"]) for e in group} for group in groups.values()))
    if not shared:
        raise DataError("the rows have no seed in common: make one run of each method with the same seed")
    controls, missing = _controls(folders, entries, sorted(shared))
    ranked, length = _ranked(
        [
            Row(name, group[0].reference, group[0].fidelity, cells_of(_runs(group, shared)))
            for name, group in groups.items()
        ]
    )
    rows = [*controls, *ranked]
    bits = sorted({bits for row in rows for _, bits in row.cells})
    metrics = entries[0].metrics
    sample = metrics["i2t"]
    data = entries[0].data_name
    items = sum(sample.get(part, 0) for part in ("database", "queries", "excluded"))
    sizes = f"{items:,} items, {sample['queries']:,} queries" if "map" in sample else "no labels"
    seeds = f"seed{'s' if len(shared) > 1 else ''} {', '.join(map(str, sorted(shared)))}"
    by_labels = has_maps(rows)
    note = (
        f"{data}, {sizes}; {'mAP@ALL of signed codes, ' if by_labels else ''}{metrics['ties']} ties, protocol "
        f"{metrics['protocol']}, {seeds}. Ranked by {'mAP' if by_labels else f'R@{RECALL_K}'} at {length} bits, mean "
        f"of both directions.{' `real`: the same outputs before signing.' if by_labels else ''} {OWN_PAIRS}"
    )
    if controls:
        names = ", ".join(row.name for row in controls)
        note += f" Ranked by real values, no codes: {names}."
    won = winners(rows)
    if won and (bold := basis_of_test(rows)):
        note += f" Bold: {bold}."
    note += "".join(f" {line}" for line in missing)
    recipes = {row.name: groups[row.name][0].recipe for row in ranked}
    differences = _differences(groups)
    published = beside_published(rows, bits, data, items) if by_labels else None
    return Leaderboard(rows, recipes, differences, bits, won, note, published)


def _block(title: str, sheet: Sheet) -> str:
    return f'<h2>{html.escape(title)}</h2>\n<div class="scroll" tabindex="0">{sheet.html()}</div>\n'


def _ranked(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """The best first, by the mean of both directions at the length that most rows have, and that length."""
    count = Counter(bits for row in rows for direction, bits in row.cells if direction == "i2t")
    if not count:
        raise DataError("no row has all the seeds of its results at any one length: make the runs that are missing")
    length = max(count, key=lambda bits: (count[bits], bits))
    by_labels = has_maps(rows)

    def figure(row: Row) -> float:
        cell = with_mean(row.cells).get((MEAN, length))
        if cell is None:
            return -1.0
        return cell.mean if by_labels else cell.recall_mean(RECALL_K)

    return sorted(rows, key=figure, reverse=True), length


def _differences(groups: Mapping[str, Sequence[Entry]]) -> dict[str, str]:
    """How each further recipe of a method differs from its first, by the name of the row."""
    first: dict[str, tuple[str, dict[str, Any]]] = {}
    lines = {}
    for name, group in groups.items():
        settings = dict(_flat(yaml.safe_load(group[0].recipe)))
        if group[0].title not in first:
            first[group[0].title] = name, settings
            continue
        other, theirs = first[group[0].title]
        changed = [key for key in {**theirs, **settings} if settings.get(key) != theirs.get(key)]
        parts = [f"{key} {_shown(settings.get(key))}, not {_shown(theirs.get(key))}" for key in changed[:NAMED]]
        more = f"; and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
        lines[name] = f"unlike {other}: {'; '.join(parts)}{more}"
    return lines


def _shown(value: Any) -> str:
    return "''" if value == "" else str(value)


def _flat(recipe: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in recipe.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{section}{name}.")
        else:
            yield f"{section}{name}", value


def _controls(folders: Sequence[Path], entries: Sequence[Entry], seeds: Sequence[int]) -> tuple[list[Row], list[str]]:
    """The real-valued controls of comparisons below `folders` that were measured by the same rules, and one line for
    each comparison whose controls are not shown."""
    rules = entries[0].metrics
    splits = {str(entry.metrics["seed"]): entry.metrics["split"] for entry in entries}
    cells: dict[str, Cells] = {}
    lines = []
    for path in sorted({path for folder in folders for path in folder.rglob(CONTROLS_FILE)}):
        record = read_controls(path)
        own_splits = {str(seed): splits[str(seed)] for seed in seeds}
        differs = [name for rule, name in RULES.items() if getattr(record, rule) != rules[rule]]
        if not differs and not own_splits.items() <= record.splits.items():
            differs = ["split"]
        if differs:
            lines.append(f"Controls of {path.parent.name} are left out: the {differs[0]} differs.")
            continue
        for name, by_bits in record.controls.items():
            for bits, by_direction in by_bits.items():
                for direction, figures in by_direction.items():
                    maps = _chosen(figures.map, seeds)
                    recalls = {int(k): _chosen(values, seeds) for k, values in figures.instance_recall.items()}
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
    except (OSError, UnicodeDecodeError, csv.Error):
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
