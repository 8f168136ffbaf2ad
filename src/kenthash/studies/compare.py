"""`kenthash compare`: the paper's Table 1 on any data: methods, lengths and seeds to one table and one figure."""

import csv
import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kenthash.codes import MAX_BITS, check_bits
from kenthash.data.pack import FeaturePack
from kenthash.data.splits import make_split
from kenthash.encoders.pipeline import features_for
from kenthash.errors import KenthashError, UsageError
from kenthash.evaluation import per_query_ap
from kenthash.evaluation.real_valued import real_valued_map
from kenthash.files import atomic_write, read_json
from kenthash.methods import METHODS
from kenthash.progress import track
from kenthash.studies.controls import CONTROLS, apply_control, has_faiss
from kenthash.studies.drawing import save
from kenthash.studies.grid import Job, check_job, run_all
from kenthash.studies.results import DIRECTIONS, Cell, Row, basis_of_test, cells_of, winners
from kenthash.studies.sheet import Sheet
from kenthash.studies.tables import comma_separated, draw_figure, latex, sheet_of
from kenthash.studies.tuning import tuned_layers
from kenthash.training.recipe import Recipe, make_recipe


@dataclass(frozen=True)
class Comparison:
    data: Path
    out: Path
    methods: tuple[str, ...]
    bits: tuple[int, ...]
    seeds: int
    layer: dict[str, Any]  # settings that all methods share
    tune: int = 0  # settings tried for each method, on validation only
    runs: Path | None = None  # the folder of the runs; None is `runs` below out

    @property
    def run_folder(self) -> Path:
        return self.runs or self.out / "runs"


def parse_methods(text: str) -> tuple[str, ...]:
    """`all` or names by commas, methods and controls alike. `all` is what the installed packages can make."""
    known = [*METHODS, *CONTROLS]
    if text == "all" and not has_faiss():
        print("pq is left out: it needs faiss: pip install 'kenthash[study]'", file=sys.stderr)
        known.remove("pq")
    names = known if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f"--methods {name}: choose from {', '.join(known)}, or all")
    return tuple(dict.fromkeys(names))


def parse_bits(text: str) -> tuple[int, ...]:
    """Code lengths by commas, each once."""
    try:
        lengths = [int(length) for length in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--bits {text}: give code lengths by commas, for example 16,32,64") from error
    return tuple(dict.fromkeys(check_bits(length) for length in lengths))


def compare(comparison: Comparison) -> Sheet:
    """Make the missing runs, write table.md, table.tex, table.csv and the figure; returns the table.

    It also has the rows of what earlier comparisons into the same folder have made with the same settings.
    """
    if own := {"data", "method", "bits", "seed"} & comparison.layer.keys():
        raise UsageError(
            f"--set {min(own)}: a comparison sets it for each run: --data, --methods, --bits and --seeds do"
        )
    # What the methods share; `settings` are each method's own, and are checked with its runs.
    recipe = make_recipe({name: value for name, value in comparison.layer.items() if name != "settings"})
    features = features_for(comparison.data, recipe.encoder.spec)
    rows = [  # the quick ones first: if one of them fails, it does so before the long part
        _control_row(name, features, comparison, recipe)
        for name in track([n for n in comparison.methods if n in CONTROLS] + _earlier_controls(comparison), "controls")
    ]
    learned = [name for name in comparison.methods if name in METHODS]
    # At one length for all: the rates and weights of a method are the same numbers in its paper whatever the length.
    middle = sorted(comparison.bits)[len(comparison.bits) // 2]
    folder = comparison.out / "tuning"
    layers = tuned_layers(folder, features.path, learned, middle, comparison.layer, comparison.tune)
    jobs = {name: _jobs(name, layer, features, comparison) for name, layer in layers.items()}
    run_all([job for by_bits in jobs.values() for of_seeds in by_bits.values() for job in of_seeds])
    jobs |= _earlier_jobs(comparison, middle, features)
    for name, by_bits in jobs.items():
        cells = cells_of({b: [job.out for job in of_seeds] for b, of_seeds in by_bits.items()})
        method = METHODS[name]
        rows.append(Row(method.title, method.citation.rsplit(", ", 1)[-1], method.fidelity, cells))
    return _write(rows, list(jobs), comparison, recipe, features)


def _jobs(name: str, layer: dict[str, Any], features: FeaturePack, comparison: Comparison) -> dict[int, list[Job]]:
    """The runs of a method by length, one per seed."""
    return {
        b: [
            Job(
                comparison.run_folder / f"{name}-{b}-{seed}",
                {**layer, "data": str(features.path), "method": name, "bits": b, "seed": seed},
            )
            for seed in range(comparison.seeds)
        ]
        for b in comparison.bits
    }


def _earlier_controls(comparison: Comparison) -> list[str]:
    """The controls of the table that is there already, which are quick to make again."""
    try:
        text = (comparison.out / "table.csv").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    names = {row.get("method") for row in csv.DictReader(io.StringIO(text))} - set(comparison.methods)
    return [name for name in CONTROLS if name in names and (name != "pq" or has_faiss())]


def _earlier_jobs(comparison: Comparison, middle: int, features: FeaturePack) -> dict[str, dict[int, list[Job]]]:
    """The finished runs of methods that the comparison does not name, by method and length, where they have its
    settings, lengths and seeds. What is left out is printed on standard error."""
    there = {re.sub(r"-\d+-\d+$", "", run.parent.name) for run in comparison.run_folder.glob("*/metrics.json")}
    kept = {}
    for name in (name for name in METHODS if name in there and name not in comparison.methods):
        try:
            jobs = _jobs(name, _earlier_layer(name, comparison, middle), features, comparison)
            for job in (job for of_seeds in jobs.values() for job in of_seeds):
                check_job(job)
                if not job.done:
                    raise UsageError(f"{job.out.name} has not been made: name {name} in --methods")
        except KenthashError as reason:
            print(f"{METHODS[name].title} is left out of the table: {reason}", file=sys.stderr)
        else:
            kept[name] = jobs
    return kept


def _earlier_layer(name: str, comparison: Comparison, middle: int) -> dict[str, Any]:
    """The settings that the comparison would give a method, found by an earlier one where it is tuned."""
    if not comparison.tune:
        return comparison.layer
    record = comparison.out / "tuning" / f"{name}-{middle}.json"
    tuned = read_json(record) if record.is_file() else {"scores": []}
    if len(tuned["scores"]) != comparison.tune:
        raise UsageError(f"it was not tuned by {comparison.tune} tries at {middle} bits: name {name} in --methods")
    layer: dict[str, Any] = tuned["layer"]
    return layer


def _control_row(name: str, features: FeaturePack, comparison: Comparison, recipe: Recipe) -> Row:
    cells = {}
    real = False
    for b in comparison.bits:
        scores: dict[str, list[Any]] = {direction: [] for direction in DIRECTIONS}
        for seed in range(comparison.seeds):
            split = make_split(len(features), seed, recipe.protocol, **vars(recipe.split))
            query, database = apply_control(name, features, split, b)
            labels = features.dataset.labels[split.query], features.dataset.labels[split.database]
            for direction, pair in (("i2t", (query.image, database.text)), ("t2i", (query.text, database.image))):
                real = pair[0].dtype != np.uint8
                score: Any = real_valued_map if real else per_query_ap
                scores[direction].append(score(*pair, *labels))
        for direction, values in scores.items():
            if real:
                cells[direction, b] = Cell(tuple(values), tuple(values))
            else:
                cells[direction, b] = Cell(tuple(float(np.nanmean(v)) for v in values), ap=np.concatenate(values))
    signs = f"{min(features.text.shape[1], MAX_BITS)} bits"
    reference = {"cosine": "float, no code", "sign": signs, "pq": "real, same bytes"}
    return Row(name, reference.get(name, "control"), "control", cells)


def _write(
    rows: Sequence[Row], learned: Sequence[str], comparison: Comparison, recipe: Recipe, features: FeaturePack
) -> Sheet:
    won = winners(rows)
    several = f"mean ± deviation over seeds 0 to {comparison.seeds - 1}"
    note = (
        f"{features.dataset.name}, {len(features):,} items; mAP@ALL, expected ties, "
        f"{several if comparison.seeds > 1 else 'seed 0'}, protocol {recipe.protocol}; {comparison.tune} settings per "
        "method tried on validation. `real`: the same outputs before signing."
    )
    if changed := ", ".join(_assignments(comparison.layer)):
        note += f" Set for all: {changed}."
    if bold := basis_of_test(rows):
        note += f" Bold: {bold}."
    for method in (METHODS[name] for name in learned):
        if method.changes:
            note += f" {method.title} is not quite its source: {method.changes}."
    sheet = sheet_of(rows, comparison.bits, won, note)
    forms = {
        "table.md": sheet.markdown(),
        "table.tex": latex(rows, comparison.bits, won),
        "table.csv": comma_separated(rows, comparison.bits),
    }
    for name, text in forms.items():
        with atomic_write(comparison.out / name, "w") as stream:
            stream.write(text)
    save(draw_figure(rows, comparison.bits), comparison.out / "figure")
    return sheet


def _assignments(layer: dict[str, Any], section: str = "") -> Iterator[str]:
    """Settings as `--set` takes them."""
    for name, value in layer.items():
        if isinstance(value, dict):
            yield from _assignments(value, f"{section}{name}.")
        else:
            yield f"{section}{name}={'null' if value is None else value}"
