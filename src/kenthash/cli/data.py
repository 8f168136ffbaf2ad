"""`kenthash data`: make and check data sets."""

import json
from pathlib import Path

import typer

app = typer.Typer(help="Make and check data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def check(
    data: Path = typer.Argument(
        help="A picture folder with metadata.jsonl, a feature pack, or the folder of COCO 2017, MIRFLICKR-25K, "
        "NUS-WIDE or the field's .mat files."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the report as one JSON value."),
    pictures: bool = typer.Option(True, "--pictures/--no-pictures", help="Open every picture (takes longest)."),
) -> None:
    """Count what is in a data set and say what is wrong with it, and what to do about that.

    ACL(c) is the number of other labels that an item of class c has on average. Exit code 0: usable, 1: not usable.

    Example: kenthash data check photos
    """
    from kenthash.data.check import check_dataset, feature_problems
    from kenthash.data.readers import read_dataset
    from kenthash.data.readers.pack import is_pack
    from kenthash.files import expand

    data = expand(data)
    report = check_dataset(read_dataset(data), pictures)
    if is_pack(data):
        from kenthash.encoders.features import FeaturePack, bad_rows  # with torch, which pictures do not need here

        report.problems += feature_problems(bad_rows(FeaturePack.open(data)))
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False) if as_json else report.to_text())
    raise typer.Exit(0 if report.usable else 1)


@app.command()
def scenes(
    out: Path = typer.Option(..., help="The folder to make; it must be empty or not there yet."),
    items: int = typer.Option(10_000, min=1, help="How many pictures to make."),
    seed: int = typer.Option(0, min=0, help="The same seed makes the same set."),
) -> None:
    """Make the generated set: pictures of drawn scenes with captions and labels, as a picture folder.

    Example: kenthash data scenes --out scenes --items 2000
    """
    from kenthash.data.scenes import make_scenes

    make_scenes(out, items, seed)
