"""`kenthash search`."""

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from kenthash.codes import Codes
    from kenthash.search import Hits, Index
    from kenthash.search.engine import Metadata


def search(
    words: str | None = typer.Argument(None, help="What to look for, in words."),
    index: str = typer.Option(..., "--index", help="The index: a file, milvus://host:port/name or postgresql://..."),
    image: Path | None = typer.Option(None, help="Look for pictures like this file."),
    like: str | None = typer.Option(None, help="Look for items like this one of the index, given by its id."),
    k: int = typer.Option(10, "-k", min=1, max=10_000, help="How many to find."),
    radius: int | None = typer.Option(None, min=0, help="Leave out what differs in more bits."),
    filter: str | None = typer.Option(None, "--filter", help="\"place = 'beach' and year >= 2020\", on metadata."),
    model: Path | None = typer.Option(
        None, help="The run that encodes the query. [default: the one noted in the index]"
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the hits as one JSON value."),
) -> None:
    """Find pictures by words, by a picture, or by an item of the index. Exact: the k nearest codes, nearest first.

    \b
        kenthash search "two dogs and a kite" --index photos.kh
        kenthash search --image dog.jpg --index photos.kh --filter "labels has 'dog' and not place = 'beach'"
        kenthash search --like photos/2024/a.jpg --index photos.kh -k 5 --json
    """
    from kenthash.errors import UsageError
    from kenthash.search import Index
    from kenthash.search.filters import parse
    from kenthash.search.models import pictures_warning

    if sum(given is not None for given in (words, image, like)) != 1:
        raise UsageError("give one of: words, --image FILE, --like ID")
    where = None if filter is None else parse(filter)
    with Index.open(index) as opened:
        if (warning := pictures_warning(opened)) is not None:
            typer.echo(f"note: {warning}", err=True)
        query = _query(opened, words, image, like, model)
        hits = opened.search(query, min(k + (like is not None), 10_000), radius, where)[0]
        bits = opened.bits
    keep = [i for i in range(len(hits)) if hits.ids[i] != like][:k]  # an item is always most like itself
    if as_json:
        typer.echo(json.dumps([_record(hits, i) for i in keep], ensure_ascii=False))
    else:
        _show(hits, keep, bits)


def _query(index: "Index", words: str | None, image: Path | None, like: str | None, model: Path | None) -> "Codes":
    """The code to look for, [1, bits/8]."""
    from kenthash.errors import DataError
    from kenthash.search.models import model_for

    if like is not None:
        item = index.get([like])[0]
        if item is None:
            raise DataError(f"{like}: no such id in the index: `kenthash index list` prints them")
        return item.code[None]
    folder = model_for(index, model)
    from kenthash.model.hasher import Hasher  # which takes seconds, so not before the model is known to be there

    hasher = Hasher.load(folder, "cpu")  # a GPU would take longer to start than one query takes
    return hasher.encode_pictures([image]) if image is not None else hasher.encode_texts([words or ""])


def _record(hits: "Hits", i: int) -> dict[str, object]:
    return {"id": hits.ids[i], "distance": int(hits.distances[i]), "metadata": hits.metadata[i]}


def _show(hits: "Hits", keep: list[int], bits: int) -> None:
    from kenthash.cli import thumbnails

    if not keep:
        typer.echo("nothing found", err=True)
    how = thumbnails.protocol()
    wide = max((len(hits.ids[i]) for i in keep), default=0)
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    for rank, i in enumerate(keep, 1):
        entry = hits.metadata[i]
        if how and isinstance(path := entry.get("path"), str):
            typer.echo(thumbnails.escape(Path(path), how), nl=False)
        line = f"{rank:>3}  {hits.distances[i]:>3} of {bits} bits differ  {hits.ids[i]:<{wide}}  "
        typer.echo((line + _plain(_told(entry))[: max(room - len(line), 20)]).rstrip())


def _told(entry: "Metadata") -> str:
    """The first text of an item, as on the page, or else its labels."""
    from kenthash.search.engine import texts_of

    texts, labels = texts_of(entry), entry.get("labels")
    return texts[0] if texts else ", ".join(labels) if isinstance(labels, list) else str(labels or "")


def _plain(text: str) -> str:
    """Without characters that would command the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
