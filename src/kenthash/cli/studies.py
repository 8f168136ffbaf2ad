"""`kenthash compare`, `reproduce` and `analyze`: methods in one table, the paper's figures, the measures of one run."""

import json
from pathlib import Path

import typer


def compare(
    data: Path = typer.Option(..., help="A feature pack, or a folder in a layout that `data check` reads."),
    out: Path = typer.Option(..., help="The folder of the comparison: its runs, table and figure."),
    methods: str = typer.Option(
        "all", help="`all`, or names, separated by commas, of methods and controls (cosine, pq, ...)."
    ),
    bits: str = typer.Option("16,32,64", help="Code lengths, separated by commas."),
    seeds: int = typer.Option(3, min=1, help="Number of runs of each method at each length, with seeds 0, 1, ..."),
    tune: int = typer.Option(0, min=0, help="Number of settings to try for each method, on validation data only."),
    assignments: list[str] = typer.Option([], "--set", help="Change one value for all runs: --set head.hidden=1024"),
) -> None:
    """Train every method at every length and seed, and write the paper's Table 1 for this data.

    Finished runs are kept: run the same command again after an interruption, or with other methods, whose rows are
    added to the table. Writes table.md, table.tex, table.csv and figure.png/.svg. Bold is ahead of every other by a
    paired test that the note names; a tie is not bold.

    \b
        kenthash compare --data packs/scenes --methods kdph,dsph,cosine --bits 16,64 --seeds 3 --out compare
    """
    from kenthash.studies.compare import Comparison, parse_bits, parse_methods
    from kenthash.studies.compare import compare as run
    from kenthash.training.recipe import parse_set

    lengths, names = parse_bits(bits), parse_methods(methods)
    table = run(Comparison(data, out, names, lengths, seeds, parse_set(assignments), tune))
    typer.echo(table.markdown(), nl=False)


def reproduce(
    target: str = typer.Argument(
        ...,
        help="table1, baseline, trajectories, oscillation, chaos, collapse, gtsd, topology, tsne, ablation, "
        "sensitivity, conflicts, causes, shape, or all.",
    ),
    data: Path = typer.Option(..., help="A feature pack, or a folder in a layout that `data check` reads."),
    out: Path = typer.Option(..., help="The folder of the study: its runs, and one folder per target."),
    bits: str = typer.Option(
        "16,32,64",
        help="Code lengths, separated by commas. table1, baseline and shape take all, causes and conflicts the "
        "shortest and the longest, the others the longest.",
    ),
    seeds: int = typer.Option(3, min=1, help="Number of runs of each setting, with seeds 0, 1, ..."),
    epochs: int = typer.Option(20, help="Epochs of every run."),
    groups: Path | None = typer.Option(
        None, help="JSON file of group name → class names, for topology. [default: groups.json in --data]"
    ),
) -> None:
    """Measure what the paper measures: a table and figures per target, or all targets and a report of them.

    Finished runs are kept: run the same command again after an interruption, or another target with the same --out.
    Each target writes table.md, .tex, .csv and figures as .png and .svg into OUT/TARGET; `all` also writes
    OUT/report.html, which opens offline.

    \b
        kenthash reproduce oscillation --data packs/coco --out study
        kenthash reproduce ablation --data packs/scenes --bits 32 --seeds 1 --out study
        kenthash reproduce all --data packs/coco --out study
    """
    from kenthash.studies.compare import parse_bits
    from kenthash.studies.reproduce import reproduce as run
    from kenthash.studies.study import Study

    for outcome in run(Study(data, out, parse_bits(bits), seeds, epochs, groups), target):
        typer.echo(outcome.text())
    if target == "all":
        typer.echo(f"\nthe report: {out / 'report.html'}")


def analyze(
    run: Path = typer.Argument(..., help="A run folder."),
    data: Path | None = typer.Option(None, help="Where the run's data is now, if it has moved."),
    groups: Path | None = typer.Option(
        None, help="JSON file of group name → class names, for topology. [default: groups.json in the data]"
    ),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the measures as JSON."),
) -> None:
    """Print the paper's measures of one finished run: precision per class and of the hardest label, GTSD, topology,
    oscillation.

    Codes are those of the run's model, proxies those of its last epoch. Flip rate and Chaos Index need a record of
    every epoch, which the dsph and kdph runs of `kenthash reproduce` have. What cannot be measured is listed
    with the reason.

    \b
        kenthash analyze runs/scenes-64
        kenthash analyze study/runs/kdph-64-0 --json | jq .chaos
    """
    from kenthash.studies.analyze import analyse, as_text

    result = analyse(run, data, groups, device)
    if as_json:
        for line in result["left_out"]:
            typer.echo(line, err=True)
    typer.echo(json.dumps(result, ensure_ascii=False) if as_json else as_text(result))
