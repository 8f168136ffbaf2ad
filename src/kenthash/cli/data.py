"""`kenthash data`, which makes and checks data sets, and `encode` and `hash`, which turn one into vectors and codes."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

from kenthash.errors import KenthashError

SHOWN = 20  # skipped items that are listed at the end; all are in the pack's meta.json

app = typer.Typer(help="Make and check data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def check(
    data: str = typer.Argument(
        help="A picture folder with metadata.jsonl, a feature pack, shards (.tar or .parquet, also at an address), or "
        "the folder of COCO 2017, MIRFLICKR-25K, NUS-WIDE or the field's .mat files."
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
    from kenthash.data.readers.shards import pictures_in_shards
    from kenthash.files import expand

    dataset, path = read_dataset(data), expand(Path(data))
    in_shards = None if dataset.pictures is not None or is_pack(path) else pictures_in_shards(data)
    report = check_dataset(dataset, pictures, in_shards)
    if is_pack(path):
        report.problems += feature_problems(bad_rows(FeaturePack.open(path)))
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False) if as_json else report.to_text())
    raise typer.Exit(0 if report.usable else 1)


@app.command()
def scenes(
    out: Path = typer.Option(..., help="The folder to make; it must be empty or not exist yet."),
    items: int = typer.Option(10_000, min=1, help="The number of pictures to make."),
    seed: int = typer.Option(0, min=0, help="The same seed gives the same pictures."),
    as_json: bool = typer.Option(False, "--json", help="Print what was made as JSON."),
) -> None:
    """Generate pictures of drawn scenes with captions and labels, as a picture folder.

    Example: kenthash data scenes --out scenes --items 2000
    """
    from kenthash.data.scenes import make_scenes

    make_scenes(out, items, seed)
    typer.echo(
        json.dumps({"folder": str(out), "items": items, "seed": seed}) if as_json else f"{out}: {items:,} pictures"
    )


def encode(
    data: str = typer.Argument(
        help="A folder of pictures with metadata.jsonl, or another layout that is known; or shards of .tar or .parquet."
    ),
    encoder: str = typer.Option(
        "light", help="clip, light, openclip:MODEL/TAG, openclip:MODEL/FILE or openclip:FOLDER."
    ),
    out: Path = typer.Option(..., help="The feature pack to write: a folder."),
    ray: str | None = typer.Option(None, help="Work on the Ray cluster at this address, host:port, or auto."),
    batch: int = typer.Option(64, min=1, help="Items encoded at a time; after an interruption whole batches are kept."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Turn pictures and texts into vectors, once: a feature pack, which training and studies read.

    After an interruption the same command continues where it stopped. Pictures that cannot be read are skipped and
    listed with the reason, also in the pack's meta.json.

    \b
        kenthash encode photos --out packs/photos
        kenthash encode photos --encoder clip --out packs/photos-clip
        kenthash encode coco2017 --encoder openclip:ViT-B-32/openai --out packs/coco-openclip
        kenthash encode photos --encoder openclip:ViT-B-32/weights.safetensors --out packs/photos-clip
    """
    from kenthash.data.readers import read_dataset, reads_shards
    from kenthash.encoders import vector_encoder
    from kenthash.encoders.pipeline import encode_dataset
    from kenthash.encoders.shard_pack import encode_on_ray, encode_shards

    if reads_shards(data):
        report = encode_shards(data, vector_encoder(encoder, "cpu" if ray else device), out, ray)
    else:
        dataset = read_dataset(data)  # before the encoder, whose graphs may have to be made first
        used = vector_encoder(encoder, "cpu" if ray else device)
        for note in dataset.notes:
            typer.echo(f"note: {note}", err=True)
        report = encode_dataset(dataset, used, out, batch) if ray is None else encode_on_ray(dataset, used, out, ray)
    if as_json:
        rate = round(report.rate, 2)
        typer.echo(json.dumps(asdict(report) | {"pack": str(report.pack), "encoder": encoder, "rate": rate}))
        return
    typer.echo(f"{report.pack}: {report.items} items, {report.texts} texts, encoder {encoder}")
    if report.reused:
        retry_hint = "; to try the skipped items again, remove it first" if report.skipped else ""
        typer.echo(f"the same items and encoder as asked for: used as it is{retry_hint}")
    else:
        typer.echo(f"encoded {report.encoded} items in {report.seconds:.1f} s, {report.rate:.1f} per second", nl=False)
        typer.echo(f"; {report.resumed} were finished before" if report.resumed else "")
    _print_skipped(report.skipped, f"see 'skipped' in {report.pack / 'meta.json'}")


def hash_data(
    data: str = typer.Argument(
        help="Shards (a folder, pattern or address of .tar or .parquet files), or a picture folder or another layout."
    ),
    model: Path = typer.Option(..., help="The run whose model makes the codes: what `train` wrote."),
    out: Path = typer.Option(..., help="The folder of codes to write: Parquet files and manifest.jsonl."),
    ray: str | None = typer.Option(None, help="Work on the Ray cluster at this address, host:port, or auto."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Turn the pictures of a data set into codes, shard by shard: files for `kenthash index add --codes`.

    Each shard becomes a Parquet file with ids, codes and metadata. After an interruption the same command continues
    with the shards that are missing. Shards that cannot be read are listed, and tried again by the next run.

    \b
        kenthash hash shards --model runs/photos-64 --out codes
        kenthash hash 's3://bucket/laion/{00000..00999}.tar' --model runs/photos-64 --out codes --ray 10.0.0.1:6379
        kenthash index add --codes codes --index photos.kh
    """
    from kenthash.model.hash_shards import hash_dataset

    folder, report = hash_dataset(data, model, out, ray, device)
    if as_json:
        typer.echo(json.dumps(asdict(report) | {"codes": str(folder), "rate": round(report.rate, 2)}))
    else:
        typer.echo(f"{folder}: {report.shards - len(report.failed)} of {report.shards} shards are finished")
        typer.echo(
            f"{report.items:,} codes of {report.done} shard{'s'[: report.done != 1]} in {report.seconds:.1f} s, "
            f"{report.rate:.1f} per second"
        )
        _print_skipped(report.skipped, f"see 'skipped' in {folder / 'manifest.jsonl'}")
    if report.failed:
        raise KenthashError(report.failed_line())


def _print_skipped(skipped: dict[str, str], where: str) -> None:
    if skipped:
        typer.echo(f"{len(skipped)} items skipped:")
        for item, reason in list(skipped.items())[:SHOWN]:
            typer.echo(f"  {item}: {reason}")
        if len(skipped) > SHOWN:
            typer.echo(f"  and {len(skipped) - SHOWN} more: {where}")
