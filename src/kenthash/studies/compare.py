"""`kenthash compare`: the paper's Table 1 on any data: methods, lengths and seeds to one table and one figure."""

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kenthash import __version__
from kenthash.codes import check_bits
from kenthash.data.pack import FeaturePack, refuse_bad_rows
from kenthash.data.splits import Split, make_split
from kenthash.encoders.pipeline import features_for
from kenthash.errors import KenthashError, UsageError
from kenthash.evaluation import instance_scores
from kenthash.evaluation.instances import INSTANCE_KS
from kenthash.evaluation.real_valued import real_valued_map
from kenthash.files import atomic_write, content_digest, read_json, write_json
from kenthash.methods import METHODS, ClosedForm
from kenthash.progress import track
from kenthash.studies.controls import CONTROLS, CONTROLS_FILE, NEED_FAISS, REFERENCES, has_faiss, side_of
from kenthash.studies.drawing import save
from kenthash.studies.entries import read_controls
from kenthash.studies.grid import Job, check_job, run_all
from kenthash.studies.published import beside_published
from kenthash.studies.results import DIRECTIONS, TIES, Cell, Row, basis_of_test, cells_of, winners
from kenthash.studies.sheet import Sheet
from kenthash.studies.tables import OWN_PAIRS, comma_separated, draw_figure, latex, sheet_of
from kenthash.studies.tuning import tuned_layers
from kenthash.training.recipe import Recipe, make_recipe
from kenthash.training.short_texts import unlearned_short_texts
from kenthash.training.supervision import label_fault, measured

ControlFigures = dict[str, dict[str, Any]]  # by direction, as in `metrics.json`, with numbers for k


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
        print(f"{', '.join(NEED_FAISS)}: left out: they need faiss: pip install 'kenthash[study]'", file=sys.stderr)
        known = [name for name in known if name not in NEED_FAISS]
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
    """The table of `compare_sheets`."""
    return compare_sheets(comparison)[0]


def compare_sheets(comparison: Comparison) -> list[Sheet]:
    """Make the missing runs, write table.md, table.tex, table.csv and the figure; returns the table and, for data that
    the paper has figures of, the paper's beside ours (`published.md` ...).

    The table also has the rows of what earlier comparisons into the same folder have made with the same settings.
    """
    if own := {"data", "method", "bits", "seed"} & comparison.layer.keys():
        raise UsageError(
            f"--set {min(own)}: a comparison sets it for each run: --data, --methods, --bits and --seeds do"
        )
    # What the methods share; `settings` are each method's own, and are checked with its runs.
    recipe = make_recipe({name: value for name, value in comparison.layer.items() if name != "settings"})
    features = features_for(comparison.data, recipe.encoder.spec)
    refuse_bad_rows(features)  # controls read the vectors themselves
    comparison = replace(comparison, methods=_without_needs(comparison.methods, _label_fault(features, recipe)))
    kinds = [METHODS[name] for name in comparison.methods if name in METHODS]
    if note := unlearned_short_texts(kinds, features, recipe.encoder.named):
        print(note, file=sys.stderr)
    controls = [name for name in comparison.methods if name in CONTROLS] + _earlier_controls(comparison)
    # The quick ones first: if one of them fails, it does so before the long part.
    rows = _control_rows(controls, features, comparison, recipe)
    learned = [name for name in comparison.methods if name in METHODS]
    # At one length for all: the rates and weights of a method are the same numbers in its paper whatever the length.
    middle = sorted(comparison.bits)[len(comparison.bits) // 2]
    folder = comparison.out / "tuning"
    trained = [name for name in learned if not issubclass(METHODS[name], ClosedForm)]  # others have nothing to tune
    layers = dict.fromkeys(learned, comparison.layer)
    layers |= tuned_layers(folder, features.path, trained, middle, comparison.layer, comparison.tune)
    jobs = {name: _jobs(name, layer, features, comparison) for name, layer in layers.items()}
    run_all([job for by_bits in jobs.values() for of_seeds in by_bits.values() for job in of_seeds])
    jobs |= _earlier_jobs(comparison, middle, features)
    for name, by_bits in jobs.items():
        cells = cells_of({b: [job.out for job in of_seeds] for b, of_seeds in by_bits.items()})
        method, length = METHODS[name], _fixed_bits(name, features)
        reference = f"{length} bits" if length else method.citation.rsplit(", ", 1)[-1]
        rows.append(Row(method.title, reference, method.fidelity, cells))
    rows.sort(key=lambda row: row.fidelity != "control")  # above the methods; otherwise in their order
    return _write(rows, list(jobs), comparison, recipe, features)


def _label_fault(features: FeaturePack, recipe: Recipe) -> str:
    """Why labels are of no use, by the split of the first seed; "" where they are."""
    split = make_split(len(features), 0, recipe.protocol, **vars(recipe.split))
    return label_fault(features.dataset.labels, np.diff(features.text_offsets), split)


def _without_needs(names: tuple[str, ...], fault: str) -> tuple[str, ...]:
    """The methods that can be compared where labels are of no use; the others are named on standard error."""
    needy = [name for name in names if name in METHODS and METHODS[name].needs_labels] if fault else []
    if needy:
        print(f"{', '.join(needy)}: left out: they need labels, and {fault}", file=sys.stderr)
    if len(needy) == len(names):
        others = ", ".join(name for name, method in METHODS.items() if not method.needs_labels)
        raise UsageError(f"--methods {','.join(names)}: all of them need labels, and {fault}: choose from {others}")
    return tuple(name for name in names if name not in needy)


def _fixed_bits(name: str, features: FeaturePack) -> int | None:
    """The length of a method that has only one, which stands in every column."""
    method = METHODS[name]
    return method.fixed_bits(features.text.shape[1]) if issubclass(method, ClosedForm) else None


def _jobs(name: str, layer: dict[str, Any], features: FeaturePack, comparison: Comparison) -> dict[int, list[Job]]:
    """The runs of a method by length, one per seed."""
    length = _fixed_bits(name, features)
    if issubclass(METHODS[name], ClosedForm):  # what concerns training does not concern it
        layer = {part: layer[part] for part in ("protocol", "split", "encoder") if part in layer}
    return {
        b: [
            Job(
                comparison.run_folder / f"{name}-{length or b}-{seed}",
                {**layer, "data": str(features.path), "method": name, "bits": length or b, "seed": seed},
            )
            for seed in range(comparison.seeds)
        ]
        for b in comparison.bits
    }


def _earlier_controls(comparison: Comparison) -> list[str]:
    """The controls of the table that is there already."""
    try:
        text = (comparison.out / "table.csv").read_text(encoding="utf-8")
        names = {row.get("method") for row in csv.DictReader(io.StringIO(text))} - set(comparison.methods)
    except (OSError, UnicodeDecodeError, csv.Error):
        return []
    return [name for name in CONTROLS if name in names and (name not in NEED_FAISS or has_faiss())]


def _earlier_jobs(comparison: Comparison, middle: int, features: FeaturePack) -> dict[str, dict[int, list[Job]]]:
    """The finished runs of methods that the comparison does not name, by method and length, where they have its
    settings, lengths and seeds. What is left out is printed on standard error."""
    run_names = {re.sub(r"-\d+-\d+$", "", run.parent.name) for run in comparison.run_folder.glob("*/metrics.json")}
    other_jobs = {}
    for name in (name for name in METHODS if name in run_names and name not in comparison.methods):
        try:
            jobs = _jobs(name, _earlier_layer(name, comparison, middle), features, comparison)
            for job in (job for of_seeds in jobs.values() for job in of_seeds):
                check_job(job)
                if not job.is_finished:
                    raise UsageError(f"{job.out.name} has not been made: name {name} in --methods")
        except KenthashError as reason:
            print(f"{METHODS[name].title} is left out of the table: {reason}", file=sys.stderr)
        else:
            other_jobs[name] = jobs
    return other_jobs


def _earlier_layer(name: str, comparison: Comparison, middle: int) -> dict[str, Any]:
    """The settings that the comparison would give a method, found by an earlier one where it is tuned."""
    if not comparison.tune or issubclass(METHODS[name], ClosedForm):
        return comparison.layer
    record = comparison.out / "tuning" / f"{name}-{middle}.json"
    tuned = read_json(record) if record.is_file() else {"scores": []}
    if len(tuned["scores"]) != comparison.tune:
        raise UsageError(f"it was not tuned by {comparison.tune} tries at {middle} bits: name {name} in --methods")
    layer: dict[str, Any] = tuned["layer"]
    return layer


def _control_rows(names: Sequence[str], features: FeaturePack, comparison: Comparison, recipe: Recipe) -> list[Row]:
    """The controls that rank by real values, fitted on the training items of each split. `controls.json` has their
    figures and the rules that they were measured by, for `kenthash leaderboard` and so that what is finished is kept.
    """
    if not names:
        return []
    splits = [
        make_split(len(features), seed, recipe.protocol, **vars(recipe.split)) for seed in range(comparison.seeds)
    ]
    record = {
        "data": str(features.path),
        "data_digest": features.dataset.digest(),
        "vectors": content_digest(features.path / "image.npy", features.path / "text.npy"),
        "protocol": recipe.protocol,
        "ties": TIES,
        "code_version": __version__,
        "splits": {str(seed): split.digest() for seed, split in enumerate(splits)},
    }
    path = comparison.out / CONTROLS_FILE
    known = _kept_figures(path, record)
    wanted = {name: [(name, b, seed) for b in comparison.bits for seed in range(len(splits))] for name in names}
    rows: dict[str, Row] = {}
    for name in track(sorted(names, key=lambda name: not known.keys() >= set(wanted[name])), "controls"):
        cells = {}
        for b in comparison.bits:
            of_seeds = [
                known.get((name, b, seed)) or _control_figures(name, b, split, features)
                for seed, split in enumerate(splits)
            ]
            for direction in DIRECTIONS:
                maps = tuple(figures[direction]["map"] for figures in of_seeds if "map" in figures[direction])
                recalls = [figures[direction]["instance_recall"] for figures in of_seeds]
                by_k = {k: tuple(recall[k] for recall in recalls) for k in INSTANCE_KS}
                cells[direction, b] = Cell(maps, maps, recalls=by_k)
        rows[name] = Row(name, REFERENCES[name], "control", cells)
        write_json(path, record | {"controls": {row.name: _control_record(row) for row in rows.values()}})
    return [rows[name] for name in names]


def _control_figures(name: str, bits: int, split: Split, features: FeaturePack) -> ControlFigures:
    """Of one split; no mAP where its labels are of no use."""
    labels, captions = features.dataset.labels, np.diff(features.text_offsets)
    rows, database = measured(labels, captions, split)
    apply = CONTROLS[name](side_of(features, split.train[captions[split.train] > 0]), bits, split.seed)
    query, own = apply(side_of(features, rows)), np.arange(len(rows))
    by_labels = None if label_fault(labels, captions, split) else apply(side_of(features, database)).items
    result: ControlFigures = {}
    for direction, (query_modality, item_modality) in (("i2t", ("image", "text")), ("t2i", ("text", "image"))):
        vectors = getattr(query.queries, query_modality)
        recall = instance_scores(vectors, getattr(query.items, item_modality), own, own).recall
        result[direction] = {"instance_recall": {k: round(value, 6) for k, value in recall.items()}}
        if by_labels is not None:
            items = getattr(by_labels, item_modality)
            result[direction]["map"] = round(real_valued_map(vectors, items, labels[rows], labels[database]), 6)
    return result


def _kept_figures(path: Path, record: dict[str, Any]) -> dict[tuple[str, int, int], ControlFigures]:
    """What an earlier comparison has measured by the same rules, by control, length and seed."""
    try:
        kept = read_controls(path) if path.is_file() else None
    except KenthashError:
        return {}  # it is made again
    if kept is None or any(getattr(kept, rule) != record[rule] for rule in record if rule != "splits"):
        return {}
    seeds = [int(seed) for seed, digest in record["splits"].items() if kept.splits.get(seed) == digest]
    known: dict[tuple[str, int, int], ControlFigures] = {}
    for name, by_bits in kept.controls.items():
        for bits, sides in by_bits.items():
            for seed in seeds:
                known[name, int(bits), seed] = {
                    direction: {"instance_recall": {int(k): values[seed] for k, values in side.instance_recall.items()}}
                    | ({"map": side.map[seed]} if side.map else {})
                    for direction, side in sides.items()
                }
    return known


def _control_record(row: Row) -> dict[str, Any]:
    record: dict[str, dict[str, Any]] = {}
    for (direction, bits), cell in row.cells.items():
        recalls = {str(k): list(values) for k, values in cell.recalls.items()}
        record.setdefault(str(bits), {})[direction] = {"map": list(cell.maps), "instance_recall": recalls}
    return record


def _write(
    rows: Sequence[Row], learned: Sequence[str], comparison: Comparison, recipe: Recipe, features: FeaturePack
) -> list[Sheet]:
    won = winners(rows)
    several = f"mean ± deviation over seeds 0 to {comparison.seeds - 1}"
    fault = _label_fault(features, recipe)
    note = (
        f"{features.dataset.name}, {len(features):,} items; {'' if fault else 'mAP@ALL, '}expected ties, "
        f"{several if comparison.seeds > 1 else 'seed 0'}, protocol {recipe.protocol}; "
        + (f"{comparison.tune} settings per method tried on validation." if comparison.tune else "nothing was tuned.")
    )
    note += (
        f" Figures by shared labels are left out: {fault}." if fault else " `real`: the same outputs before signing."
    )
    note += f" {OWN_PAIRS}"
    if trained := [name for name in learned if not issubclass(METHODS[name], ClosedForm)]:
        note += f" {_training(trained, comparison.layer)}"
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
    sheets = [sheet]
    if not fault and (published := beside_published(rows, comparison.bits, features.dataset.name, len(features))):
        sheets.append(published)
        forms |= {f"{published.name}.{form}": text for form, text in published.forms().items()}
    for name, text in forms.items():
        with atomic_write(comparison.out / name, "w") as stream:
            stream.write(text)
    save(draw_figure(rows, comparison.bits), comparison.out / "figure")
    return sheets


def _training(names: Sequence[str], layer: dict[str, Any]) -> str:
    """How long the methods were trained, and from where on."""
    shared = {name: value for name, value in layer.items() if name != "settings"}
    recipes = {METHODS[name].title: make_recipe({**shared, "method": name}) for name in names}
    usual = Counter(recipe.epochs for recipe in recipes.values()).most_common(1)[0][0]
    others = [f"{title} for {recipe.epochs}" for title, recipe in recipes.items() if recipe.epochs != usual]
    start = next(iter(recipes.values())).start
    begin = f"go on from those of {start}" if start else "begin with random weights"
    return f"Trained for {', '.join([f'{usual} epochs', *others])}; heads {begin}."


def _assignments(layer: dict[str, Any], section: str = "") -> Iterator[str]:
    """Settings as `--set` takes them."""
    for name, value in layer.items():
        if isinstance(value, dict):
            yield from _assignments(value, f"{section}{name}.")
        else:
            yield f"{section}{name}={'null' if value is None else value}" if value != "" else f"{section}{name}=''"
