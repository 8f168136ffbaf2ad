"""`kenthash demo`."""

from pathlib import Path

import typer


def demo(
    out: Path = typer.Option(Path("demo"), help="The folder for everything that the demo makes."),
    items: int = typer.Option(4_000, min=200, help="Scenes to make."),
) -> None:
    """The main job on the embedded default, end to end: make pictures, encode them, learn codes, measure them.

    What is finished is kept: a second run reuses it.
    """
    from kenthash.demo import run_demo

    run_demo(out, items, typer.echo)
