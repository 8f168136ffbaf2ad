"""`kenthash reproduce`: the paper's tables and figures, measured on any data."""

from pathlib import Path

import typer


def reproduce(
    target: str = typer.Argument(
        ...,
        help="table1, baseline, trajectories, oscillation, chaos, collapse, gtsd, topology, tsne, ablation, "
        "sensitivity, conflicts, causes, shape, or all.",
    ),
    data: Path = typer.Option(..., help="A feature pack, or a folder that a reader knows."),
    out: Path = typer.Option(..., help="The folder of the study: its runs, and a folder a target."),
    bits: str = typer.Option(
        "16,32,64",
        help="Code lengths by commas. table1, baseline and shape take all, causes and conflicts the shortest and the "
        "longest, the others the longest.",
    ),
    seeds: int = typer.Option(3, min=1, help="Runs of everything, with seeds 0, 1, ..."),
    epochs: int = typer.Option(20, help="Epochs of every run."),
    groups: Path | None = typer.Option(
        None, help="JSON file of group name → class names, for topology. [default: groups.json in --data]"
    ),
) -> None:
    """Measure what the paper measures: a table and figures a target, or all of them and a report to read.

    What is finished is kept: run the same command again after a stop, or another target with the same --out. Each
    target writes table.md, .tex, .csv and figures as .png and .svg into OUT/TARGET; `all` also writes OUT/report.html,
    which opens offline.

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
