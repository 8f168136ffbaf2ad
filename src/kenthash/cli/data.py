"""`kenthash data`, which makes and checks data sets, and `kenthash encode`, which turns one into vectors."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

SHOWN = 20  # skipped items that are listed at the end; all are in the pack's meta.json

app = typer.Typer(help="Make and check data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def check(
    data: Path = typer.Argument(
        help="A picture folder with metadata.jsonl, a feature pack, or the folder of COCO 2017, MIRFLICKR-25K, "
        "NUS-WIDE or the field's .mat files."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the report as one JSON value."),
    pictures: bool = typer.Option(True, "--pictures/--no-pictures", help="Open every picture, which takes longest."),
) -> None:
    """Count the items, texts and labels of a data set, and list what is wrong with it and how to mend it.

    ACL(c) is the mean number of other labels of the items of class c. Exit code 0: usable, 1: not usable.

    Example: kenthash data check photos
    """
    from kenthash.data.check import check_dataset, feature_problems
    from kenthash.data.pack import FeaturePack, bad_rows, is_pack
    from kenthash.data.readers import read_dataset
    from kenthash.files import expand

    data = expand(data)
    report = check_dataset(read_dataset(data), pictures)
    if is_pack(data):
        report.problems += feature_problems(bad_rows(FeaturePack.open(data)))
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False) if as_json else report.to_text())
    raise typer.Exit(0 if report.usable else 1)


@app.command()
def scenes(
    out: Path = typer.Option(..., help="The folder to make; it must be empty or not exist yet."),
    items: int = typer.Option(10_000, min=1, help="The number of pictures to make."),
    seed: int = typer.Option(0, min=0, help="The same seed gives the same pictures."),
) -> None:
    """Generate pictures of drawn scenes with captions and labels, as a picture folder.

    Example: kenthash data scenes --out scenes --items 2000
    """
    from kenthash.data.scenes import make_scenes

    make_scenes(out, items, seed)


def encode(
    data: Path = typer.Argument(..., help="A folder of pictures with metadata.jsonl, or another layout that is known."),
    encoder: str = typer.Option("light", help="light, openclip:MODEL/TAG, openclip:MODEL/FILE or openclip:FOLDER."),
    out: Path = typer.Option(..., help="The feature pack to write: a folder."),
    batch: int = typer.Option(64, min=1, help="Items encoded at a time; after an interruption whole batches are kept."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Turn pictures and texts into vectors, once: a feature pack, which training and studies read.

    After an interruption the same command continues where it stopped. Pictures that cannot be read are skipped and
    listed with the reason, also in the pack's meta.json.

    \b
        kenthash encode photos --out packs/photos
        kenthash encode coco2017 --encoder openclip:ViT-B-32/openai --out packs/coco-clip
        kenthash encode photos --encoder openclip:ViT-B-32/weights.safetensors --out packs/photos-clip
    """
    from kenthash.data.readers import read_dataset
    from kenthash.encoders import vector_encoder
    from kenthash.encoders.pipeline import encode_dataset

    dataset = read_dataset(data)
    for note in dataset.notes:
        typer.echo(f"note: {note}", err=True)
    report = encode_dataset(dataset, vector_encoder(encoder, device), out, batch)
    if as_json:
        rate = round(report.rate, 2)
        typer.echo(json.dumps(asdict(report) | {"pack": str(report.pack), "encoder": encoder, "rate": rate}))
        return
    typer.echo(f"{report.pack}: {report.items} items, {report.texts} texts, encoder {encoder}")
    if report.reused:
        again = "; to try the skipped items again, remove it first" if report.skipped else ""
        typer.echo(f"the same items and encoder as asked for: used as it is{again}")
    else:
        typer.echo(f"encoded {report.encoded} items in {report.seconds:.1f} s, {report.rate:.1f} per second", nl=False)
        typer.echo(f"; {report.resumed} were finished before" if report.resumed else "")
    if report.skipped:
        typer.echo(f"{len(report.skipped)} items skipped:")
        for item, reason in list(report.skipped.items())[:SHOWN]:
            typer.echo(f"  {item}: {reason}")
        if len(report.skipped) > SHOWN:
            typer.echo(f"  and {len(report.skipped) - SHOWN} more: see 'skipped' in {report.pack / 'meta.json'}")
