"""`kenthash compare`: methods side by side on the same data."""

from pathlib import Path

import typer


def compare(
    data: Path = typer.Option(..., help="A feature pack, or a folder that a reader knows."),
    out: Path = typer.Option(..., help="The folder of the comparison: its runs, table and figure."),
    methods: str = typer.Option("all", help="`all`, or names by commas: methods, and controls such as cosine or pq."),
    bits: str = typer.Option("16,32,64", help="Code lengths by commas."),
    seeds: int = typer.Option(3, min=1, help="Runs of every method and length, with seeds 0, 1, ..."),
    tune: int = typer.Option(0, min=0, help="Settings to try for every method, on validation data only."),
    assignments: list[str] = typer.Option([], "--set", help="Change one value for all: --set head.hidden=1024"),
) -> None:
    """Train every method at every length and seed, and write the paper's Table 1 for this data.

    What is finished is kept: run the same command again after a stop, or with more methods. Writes table.md, table.tex,
    table.csv and figure.png/.svg. Bold is ahead of every other by a paired test that the note names; a tie is not bold.

    \b
        kenthash compare --data packs/scenes --methods kdph,dsph,cosine --bits 16,64 --seeds 3 --out compare
    """
    from kenthash.studies.compare import Comparison, parse_bits, parse_methods
    from kenthash.studies.compare import compare as run
    from kenthash.training.recipe import parse_set

    lengths, names = parse_bits(bits), parse_methods(methods)
    table = run(Comparison(data, out, names, lengths, seeds, parse_set(assignments), tune))
    typer.echo(table.markdown(), nl=False)
