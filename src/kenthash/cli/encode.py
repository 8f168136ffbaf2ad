"""`kenthash encode`."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

SHOWN = 20  # skipped items that are listed at the end; all are in the pack's meta.json


def encode(
    data: Path = typer.Argument(..., help="A folder of pictures with metadata.jsonl, or another layout that is known."),
    encoder: str = typer.Option("light", help="light, openclip:MODEL/TAG, openclip:MODEL/FILE or openclip:FOLDER."),
    out: Path = typer.Option(..., help="The feature pack to write: a folder."),
    batch: int = typer.Option(64, min=1, help="Items that are finished, and kept on a kill, at a time."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Turn pictures and texts into vectors, once: a feature pack, which training and studies read.

    Interrupted or killed, the same command goes on where it was. Pictures that cannot be read are skipped with a line
    each; the pack has a list of them in meta.json.

    \b
        kenthash encode photos --out packs/photos
        kenthash encode coco2017 --encoder openclip:ViT-B-32/openai --out packs/coco-clip
        kenthash encode photos --encoder openclip:ViT-B-32/weights.safetensors --out packs/photos-clip
    """
    from kenthash.data.readers import read_dataset
    from kenthash.encoders import load_encoder
    from kenthash.encoders.pipeline import encode_dataset

    dataset = read_dataset(data)
    for note in dataset.notes:
        typer.echo(f"note: {note}", err=True)
    report = encode_dataset(dataset, load_encoder(encoder, device), out, batch)
    if as_json:
        rate = round(report.rate, 2)
        typer.echo(json.dumps(asdict(report) | {"pack": str(report.pack), "encoder": encoder, "rate": rate}))
        return
    typer.echo(f"{report.pack}: {report.items} items, {report.texts} texts, encoder {encoder}")
    if report.reused:
        again = "; to try the skipped items again, remove it first" if report.skipped else ""
        typer.echo(f"the same items and encoder as asked for: used as it is{again}")
    else:
        typer.echo(f"encoded {report.encoded} items in {report.seconds:.1f} s, {report.rate:.1f} a second", nl=False)
        typer.echo(f"; {report.resumed} were finished before" if report.resumed else "")
    if report.skipped:
        typer.echo(f"{len(report.skipped)} items skipped:")
        for item, reason in list(report.skipped.items())[:SHOWN]:
            typer.echo(f"  {item}: {reason}")
        if len(report.skipped) > SHOWN:
            typer.echo(f"  and {len(report.skipped) - SHOWN} more: see 'skipped' in {report.pack / 'meta.json'}")
