"""`kenthash index`: add pictures or codes to an index, list, export and remove them."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

app = typer.Typer(
    help="Add, list, export and remove the items of an index.", no_args_is_help=True, rich_markup_mode=None
)

INDEX = typer.Option(..., "--index", help="The index: a file, milvus://host:port/name or postgresql://...")
JSON = typer.Option(False, "--json", help="Print the result as one JSON value.")
SHOWN = 20  # skipped pictures that are listed


@app.command("add")
def add(
    folder: Path | None = typer.Argument(
        None, help="A folder of pictures, with or without metadata.jsonl; or a feature pack."
    ),
    index: str = INDEX,
    model: Path | None = typer.Option(None, help="The run whose model encodes the pictures: what `train` wrote."),
    codes: Path | None = typer.Option(None, help="Codes to add instead of pictures: what `index export` wrote."),
    texts: bool = typer.Option(False, "--texts", help="Also make codes of the items' texts, so that texts are found."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = JSON,
) -> None:
    """Add the pictures of a folder, or update them: new and changed ones are encoded, removed ones dropped.

    After an interruption the same command continues where it stopped. The keys of metadata.jsonl become metadata, by
    which searches can be filtered. The items of a feature pack are added by its vectors; no picture is encoded again.
    After --texts was given once, later calls make the codes of new texts without it.

    \b
        kenthash index add photos --model runs/photos-64 --index photos.kh --texts
        kenthash index add packs/photos --model runs/photos-64 --index packed.kh
        kenthash index add --codes exported.parquet --index copy.kh
    """
    from kenthash.data.pack import is_pack
    from kenthash.errors import UsageError

    if (folder is None) == (codes is None) or (codes is not None and (model is not None or texts)):
        raise UsageError("give either a folder with --model, or --codes")
    if codes is not None:
        result = _add_codes(codes, index)
    elif folder is not None and model is not None:
        result = (_add_pack if is_pack(folder) else _add_folder)(folder, model, index, device, texts)
    else:
        raise UsageError("a folder of pictures needs --model: the run whose model encodes them")
    if as_json:
        typer.echo(json.dumps(result))
        return
    skipped = result.pop("skipped", {})
    assert isinstance(skipped, dict)
    typer.echo(", ".join(f"{count} {name}" for name, count in result.items()))
    for name, reason in list(skipped.items())[:SHOWN]:
        typer.echo(f"  skipped {name}: {reason}", err=True)
    if len(skipped) > SHOWN:
        typer.echo(f"  and {len(skipped) - SHOWN} more", err=True)


def _add_folder(folder: Path, model: Path, target: str, device: str, texts: bool) -> dict[str, object]:
    from kenthash.model.hasher import Hasher
    from kenthash.search import Index, add_texts
    from kenthash.search.folder import sync_folder, walk_folder
    from kenthash.search.models import assign_model, is_current, model_folder

    # First of all, so that neither a folder without pictures nor an encoder with other weights leaves an index behind.
    content = walk_folder(folder)
    hasher = Hasher.load(model_folder(model), device)
    _ = hasher.encoder
    with Index.open_or_create(target, hasher.bits) as index:
        assign_model(index, model)
        if not is_current(index):
            typer.echo("this index was filled by another version of kenthash: its pictures are encoded again", err=True)
        report = asdict(sync_folder(index, content, hasher.encode_files))
        if texts or index.keeps_texts():
            report["texts"] = add_texts(index, hasher.encode_texts)
            if not index.has_texts():
                typer.echo("no item has a text: name them as `text` or `texts` in metadata.jsonl", err=True)
        if report["added"] or report["changed"] or report["removed"] or report.get("texts"):
            index.compact()
    return report


def _add_pack(path: Path, model: Path, target: str, device: str, texts: bool) -> dict[str, object]:
    from kenthash.data.pack import FeaturePack
    from kenthash.model.hasher import Hasher
    from kenthash.search import Index, add_texts
    from kenthash.search.models import assign_model, model_folder
    from kenthash.search.packs import add_pack

    pack, hasher = FeaturePack.open(path), Hasher.load(model_folder(model), device)
    codes = hasher.encode_pack(pack)
    if not pack.version:
        typer.echo("note: the pack does not tell its version: codes of new pictures may be off by a few bits", err=True)
    with Index.open_or_create(target, hasher.bits) as index:
        assign_model(index, model)
        report = asdict(add_pack(index, pack.dataset, codes, pack.version))
        if texts or index.keeps_texts():
            report["texts"] = add_texts(index, hasher.text_encoder(pack))
            if not index.has_texts():
                typer.echo("no item has a text: the pack has none in texts.jsonl", err=True)
        if report["added"] or report["changed"] or report.get("texts"):
            index.compact()
    return report


def _add_codes(path: Path, target: str) -> dict[str, object]:
    from kenthash.search import Index
    from kenthash.search.export import read_codes
    from kenthash.search.models import check_codes_version

    ids, codes, metadata = read_codes(path)
    with Index.open_or_create(target, 8 * codes.shape[1]) as index:
        check_codes_version(index, metadata)
        index.add(ids, codes, metadata)
        index.compact()
    return {"added": len(ids)}


@app.command("remove")
def remove(
    ids: list[str] = typer.Argument(help="Ids, as `index list` prints them."),
    index: str = INDEX,
    as_json: bool = JSON,
) -> None:
    """Remove items by id; unknown ids are ignored. Prints the number removed."""
    from kenthash.search import Index

    with Index.open(index) as opened:
        removed = opened.remove(ids)
    typer.echo(json.dumps({"removed": removed}) if as_json else removed)


@app.command("list")
def list_items(
    index: str = INDEX,
    after: str = typer.Option("", help="Start after this id."),
    limit: int = typer.Option(1000, min=1, help="The largest number of ids to print."),
    as_json: bool = JSON,
) -> None:
    """List ids in order."""
    from kenthash.search import Index

    with Index.open(index) as opened:
        names = opened.list_ids(after, limit)
    typer.echo(json.dumps(names) if as_json else "\n".join(names), nl=bool(names) or as_json)


@app.command("export")
def export(
    index: str = INDEX,
    out: Path = typer.Option(..., help="What to write: a folder, or a file for parquet. It must not exist yet."),
    kind: str = typer.Option("npy", "--format", help="npy, parquet or faiss (an IndexBinaryFlat)."),
    as_json: bool = JSON,
) -> None:
    """Write ids, codes and metadata for other tools or for `index add --codes`. Prints the number of items."""
    from kenthash.search import Index
    from kenthash.search.export import export_index

    with Index.open(index) as opened:
        exported = export_index(opened, out, kind)
    typer.echo(json.dumps({"exported": exported}) if as_json else exported)


@app.command("stats")
def stats(index: str = INDEX, as_json: bool = JSON) -> None:
    """Items, bits, bytes on disk, and the model that the codes come from."""
    from kenthash.search import Index

    with Index.open(index) as opened:
        figures, notes = asdict(opened.stats()), opened.notes()
    if as_json:
        typer.echo(json.dumps({**figures, "notes": notes}))
        return
    details = figures.pop("details")
    for name, value in {**figures, **details, **notes}.items():
        typer.echo(f"{name:<18} {value:,}" if isinstance(value, int) else f"{name:<18} {value}")
