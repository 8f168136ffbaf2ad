"""`kenthash index`: add pictures or codes to an index, list, export and remove them; check it, and copy it."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

app = typer.Typer(
    help="Add, list, export and remove the items of an index; check it, and copy it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

INDEX = typer.Option(
    None,
    "--index",
    help="The index: a file, milvus://host:port/name or postgresql://... [default: that of this folder or above]",
)
JSON = typer.Option(False, "--json", help="Print the result as one JSON value.")
# Notes of an index under names that say what they are.
NOTES = {"model": "digest of model", "model_path": "model", "pictures": "picture pipeline"}


@app.command("add")
def add(
    data: str | None = typer.Argument(
        None,
        help="A folder of pictures, with or without metadata.jsonl; a feature pack; or shards of .tar or .parquet.",
    ),
    index: str | None = typer.Option(
        None,
        "--index",
        help="The index: a file, milvus://host:port/name or postgresql://... [default: .kenthash.kh in the folder]",
    ),
    model: Path | None = typer.Option(
        None,
        help="What encodes the pictures: a run that `train` wrote, or a name of `models list`. [default: the model of "
        "the index; of a new one, the best of `models list`]",
    ),
    exclude: list[str] = typer.Option(
        [],
        help="Leave out files and folders of such a name, as in --exclude '*.gif' --exclude drafts; kept until others "
        "are given, '' for none.",
    ),
    codes: Path | None = typer.Option(
        None,
        help="Codes to add instead of pictures: what `hash` or `index export` wrote. They are found by code alone.",
    ),
    staging: str | None = typer.Option(
        None, help="With --codes, on Milvus: the folder or address from which it imports files, for many millions."
    ),
    texts: bool = typer.Option(False, "--texts", help="Also make codes of the items' texts, so that texts are found."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = JSON,
) -> None:
    """Add the pictures of a folder, or update them: new and changed ones are encoded, removed ones dropped.

    `search` finds the index of a folder again from there and from any folder below. After an interruption the same
    command continues where it stopped. What the files say about the photos (taken, camera, latitude, longitude, width,
    height, orientation, folder), and the keys of metadata.jsonl, become metadata, by which searches can be filtered.
    The items of a feature pack are added by its vectors; no picture is encoded again. Those of shards are never
    removed; what `kenthash hash` would make of the shards is kept in the user's cache. After --texts was given once,
    later calls make the codes of new texts without it.

    \b
        cd photos && kenthash index add .
        kenthash index add photos --model runs/photos-64 --index photos.kh --texts
        kenthash index add packs/photos --model runs/photos-64 --index packed.kh
        kenthash index add --codes exported.parquet --index copy.kh
    """
    from kenthash.data.pack import is_pack
    from kenthash.data.readers import reads_shards
    from kenthash.errors import DataError, UsageError
    from kenthash.storage import is_address

    data = data or None  # an empty one, of a variable that is not set, would be this folder
    if (data is None) == (codes is None) or (codes is not None and (model is not None or texts or exclude)):
        raise UsageError("give either a folder, such as . for this one, or --codes")
    if staging is not None and (codes is None or not str(index).startswith("milvus://")):
        raise UsageError("--staging is for --codes in an index on Milvus")
    packed = data is not None and not is_address(data) and is_pack(Path(data))
    if index is None and (data is None or packed or reads_shards(data)):
        raise UsageError("say with --index where codes, feature packs and shards are to be indexed")
    if codes is not None:
        result = _add_codes(codes, str(index), staging)
    elif packed:
        result = _add_pack(Path(str(data)), model, str(index), device, texts)
    elif reads_shards(str(data)):
        result = _add_shards(str(data), model, str(index), device, texts)
    else:
        patterns = [pattern for pattern in exclude if pattern] if exclude else None
        folder = Path(str(data))
        result = _add_folder(folder, model, index, device, texts, patterns)
    skipped = result.get("skipped", {})
    assert isinstance(skipped, dict)
    if as_json:
        typer.echo(json.dumps(result))
    else:
        counts = [f"{count} {name}" for name, count in result.items() if name != "skipped"]
        typer.echo(", ".join([*counts, f"{len(skipped)} skipped"]))
        for name, reason in skipped.items():
            typer.echo(f"  skipped {name}: {reason}", err=True)
    if "moved" in result and not any(result[name] for name in ("added", "changed", "moved", "unchanged")):
        if skipped:
            raise DataError(f"{data}: none of its pictures can be used: the lines above say why")
        raise DataError(f"{data}: all of its pictures are excluded: give other patterns, or --exclude '' for none")


def _add_folder(
    folder: Path, model: Path | None, target: str | None, device: str, texts: bool, exclude: list[str] | None
) -> dict[str, object]:
    from kenthash.api import index_folder

    report = asdict(
        index_folder(folder, target, model, texts, exclude, device, lambda line: typer.echo(line, err=True))
    )
    if report["texts"] is None:
        del report["texts"]
    return report


def _add_pack(path: Path, model: Path | None, target: str, device: str, texts: bool) -> dict[str, object]:
    from kenthash.api import model_to_index_with
    from kenthash.data.pack import FeaturePack
    from kenthash.model.hasher import Hasher
    from kenthash.search import Index, add_texts
    from kenthash.search.fill import add_pack
    from kenthash.search.models import assign_model, stages

    model = model_to_index_with(target, model)
    pack, hasher = FeaturePack.open(path), Hasher.load(model, device)
    codes = hasher.encode_pack(pack)
    if not pack.version:
        typer.echo("note: the pack does not tell its version: codes of new pictures may be off by a few bits", err=True)
    with Index.open_or_create(target, *stages(hasher.bits, hasher.config.nested)) as index:
        assign_model(index, model)
        report = asdict(add_pack(index, pack.dataset, codes, pack.version))
        index.update_words()
        if texts or index.keeps_texts():
            report["texts"] = add_texts(index, hasher.text_encoder(pack))
            if not index.has_texts():
                typer.echo("no item has a text: the pack has none in texts.jsonl", err=True)
        if report["added"] or report["changed"] or report.get("texts"):
            index.compact()
    return report


def _add_shards(data: str, model: Path | None, target: str, device: str, texts: bool) -> dict[str, object]:
    """By way of codes in the user's cache, so that a shard is encoded once."""
    from kenthash.api import model_to_index_with
    from kenthash.model.hash_shards import cached_codes
    from kenthash.model.hasher import Hasher
    from kenthash.search import Index, add_texts
    from kenthash.search.fill import fill_index, find_codes

    model = model_to_index_with(target, model)
    folder, skipped = cached_codes(data, model, device)
    codes = find_codes(folder)
    with Index.open_or_create(target, *codes.stages) as index:
        report = asdict(fill_index(index, codes)) | {"skipped": skipped}
        index.update_words()
        if texts or index.keeps_texts():
            report["texts"] = add_texts(index, Hasher.load(model, device).encode_texts)
        if report["added"] or report["changed"] or report.get("texts"):
            index.compact()
    return report


def _add_codes(path: Path, target: str, staging: str | None) -> dict[str, object]:
    from kenthash.search import Index
    from kenthash.search.fill import fill_index, find_codes

    codes = find_codes(path)
    with Index.open_or_create(target, *codes.stages) as index:
        report = fill_index(index, codes, staging)
        if report.added or report.changed:
            index.compact()
    return asdict(report)


@app.command("remove")
def remove(
    ids: list[str] = typer.Argument(help="Ids, as `index list` prints them."),
    index: str | None = INDEX,
    as_json: bool = JSON,
) -> None:
    """Remove items by id; unknown ids are ignored. Prints the number removed."""
    from kenthash.search import Index
    from kenthash.search.folders.own_index import given_or_own_index

    with Index.open(given_or_own_index(index)) as opened:
        removed = opened.remove(ids)
    typer.echo(json.dumps({"removed": removed}) if as_json else f"{removed:,} removed")


@app.command("list")
def list_items(
    index: str | None = INDEX,
    after: str = typer.Option("", help="Start after this id."),
    limit: int = typer.Option(1000, min=1, help="The largest number of ids to print."),
    as_json: bool = JSON,
) -> None:
    """List ids in order."""
    from kenthash.search import Index
    from kenthash.search.folders.own_index import given_or_own_index

    with Index.open(given_or_own_index(index)) as opened:
        names = opened.list_ids(after, limit)
    typer.echo(json.dumps(names) if as_json else "\n".join(names), nl=bool(names) or as_json)


@app.command("duplicates")
def duplicates(index: str | None = INDEX, as_json: bool = JSON) -> None:
    """Groups of pictures that are nearly the same: saved again, resized, cropped a little, written on. The largest of
    each group comes first. Nothing is removed.

    \b
        cd photos && kenthash index duplicates
        kenthash index duplicates --json | jq -r '.groups[][1:][].path'    # all but the largest of each
    """
    from kenthash.search import Index
    from kenthash.search.duplicates import find_duplicates
    from kenthash.search.folders.own_index import given_or_own_index
    from kenthash.search.folders.roots import Roots

    with Index.open(given_or_own_index(index)) as opened:
        result, roots = find_duplicates(opened), Roots(opened)
    groups = [
        [
            {
                "id": item.id,
                "path": None if (path := roots.path_of(item.id, item.metadata)) is None else str(path),
                **{key: item.metadata.get(key) for key in ("width", "height", "size")},
            }
            for item in group
        ]
        for group in result.groups
    ]
    if as_json:
        typer.echo(json.dumps({"groups": groups, "compared": result.compared, "without": result.without}))
        return
    for group in groups:
        typer.echo(f"{len(group)} pictures")
        for item in group:
            pixels = f"{item['width']} × {item['height']}" if item["width"] else ""
            size = f"{item['size']:,} bytes" if isinstance(item["size"], int) else ""
            typer.echo(f"  {pixels:<13} {size:>18}  {item['path'] or item['id']}")
    copies = sum(len(group) - 1 for group in groups)
    typer.echo(f"compared {result.compared:,}; groups: {len(groups):,}, copies: {copies:,}", err=True)
    if result.without:
        typer.echo(
            f"note: items without a fingerprint: {result.without:,}; those of `index add FOLDER` have one",
            err=True,
        )


@app.command("export")
def export(
    index: str | None = INDEX,
    out: Path = typer.Option(..., help="What to write: a folder, or a file for parquet. It must not exist yet."),
    kind: str = typer.Option("npy", "--format", help="npy, parquet or faiss (an IndexBinaryFlat)."),
    as_json: bool = JSON,
) -> None:
    """Write ids, codes and metadata for other tools or for `index add --codes`. Prints the number of items."""
    from kenthash.search import Index
    from kenthash.search.export import export_index
    from kenthash.search.folders.own_index import given_or_own_index

    with Index.open(given_or_own_index(index)) as opened:
        exported = export_index(opened, out, kind)
    typer.echo(json.dumps({"exported": exported}) if as_json else f"{out}: {exported:,} items")


@app.command("stats")
def stats(index: str | None = INDEX, as_json: bool = JSON) -> None:
    """Items, bits, bytes on disk, and the model that the codes come from."""
    from kenthash.search import Index
    from kenthash.search.folders.own_index import given_or_own_index
    from kenthash.search.folders.roots import ROOTS, Roots
    from kenthash.search.local.sqlite import SAFE_VERSION, old_version_warning

    with Index.open(given_or_own_index(index)) as opened:
        figures, notes, roots = asdict(opened.stats()), opened.notes(), Roots(opened)
    if warning := old_version_warning(figures["details"].get("SQLite", SAFE_VERSION)):
        typer.echo(f"warning: {warning}", err=True)
    if as_json:
        typer.echo(json.dumps({**figures, "notes": notes}))
        return
    details = figures.pop("details")
    readable = {NOTES.get(name, name): value for name, value in notes.items() if value and name != ROOTS}
    lines = [*figures.items(), *details.items(), *readable.items(), *(("folder", root.path) for root in roots)]
    for name, value in lines:
        typer.echo(f"{name:<18} {value:,}" if isinstance(value, int) else f"{name:<18} {value}")


@app.command("verify")
def verify(
    index: str | None = INDEX,
    repair: bool = typer.Option(False, "--repair", help="Make again what can be made from the items."),
    as_json: bool = JSON,
) -> None:
    """Check an index in a file as a whole: the SQLite file, every item, the codes of texts, and every code, checksum
    and table of the code files. Others may write meanwhile.

    The exit code is 1 where something is wrong. --repair makes indexes of the SQLite file, code files and their tables
    again, and drops codes of texts that are wrong, for `index add --texts` to make. Damaged items come from a backup.
    """
    from kenthash.search.folders.own_index import given_or_own_index
    from kenthash.search.local.maintenance import verify_index

    result = verify_index(given_or_own_index(index), repair)
    if as_json:
        typer.echo(json.dumps({"healthy": result.healthy, **asdict(result)}))
    else:
        counts = f"{result.items:,} items, {result.texts:,} codes of texts, {result.code_files} code files"
        typer.echo(f"{'healthy' if result.healthy else 'damaged'}: {counts}")
        for state, faults in (("repaired", result.repaired), ("wrong", result.faults)):
            for part, lines in faults.items():
                for line in lines:
                    typer.echo(f"  {state}, {part}: {line}")
    if not result.healthy:
        if not as_json:
            typer.echo("  run it with --repair, or restore the index from a backup", err=True)
        raise typer.Exit(1)


@app.command("backup")
def backup(
    index: str | None = INDEX,
    out: Path = typer.Option(..., help="The copy to make. It must not exist yet."),
    as_json: bool = JSON,
) -> None:
    """Copy an index in a file as of this moment, while others search and write. Prints the number of items.

    The copy is one file, and an index itself. To restore it, stop what uses the old index, remove the files whose names
    begin with its name (a log that is left, such as photos.kh-wal, would change the copy), and copy it there.
    """
    from kenthash.search.folders.own_index import given_or_own_index
    from kenthash.search.local.maintenance import backup_index

    items = backup_index(given_or_own_index(index), out)
    typer.echo(json.dumps({"items": items}) if as_json else f"{out}: {items:,} items")
