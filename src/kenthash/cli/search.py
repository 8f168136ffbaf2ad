"""`kenthash search`: find items of an index by words, by a picture or by another item, and show them."""

import base64
import json
import os
import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from kenthash.codes import Codes
    from kenthash.search import Hits, Index
    from kenthash.search.engine import Metadata

THUMBNAIL_SIDE = 160  # pixels
THUMBNAIL_LINES = 4  # height of a thumbnail in lines of text
KITTY_CHUNK = 4096  # characters that kitty accepts per escape sequence


def search(
    words: str | None = typer.Argument(None, help="What to look for, in words."),
    index: str = typer.Option(..., "--index", help="The index: a file, milvus://host:port/name or postgresql://..."),
    image: Path | None = typer.Option(None, help="Look for pictures like this file."),
    like: str | None = typer.Option(None, help="Look for items like this one of the index, given by its id."),
    k: int = typer.Option(10, "-k", min=1, max=10_000, help="The number of items to find."),
    radius: int | None = typer.Option(None, min=0, help="Leave out items that differ in more bits than this."),
    filter: str | None = typer.Option(None, "--filter", help="\"place = 'beach' and year >= 2020\", on metadata."),
    model: Path | None = typer.Option(
        None, help="The run that encodes the query. [default: the one noted in the index]"
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the hits as one JSON value."),
) -> None:
    """Find pictures by words, by a picture, or by an item of the index. Prints the k nearest codes, nearest first; the
    search is exact.

    \b
        kenthash search "two dogs and a kite" --index photos.kh
        kenthash search --image dog.jpg --index photos.kh --filter "labels has 'dog' and not place = 'beach'"
        kenthash search --like photos/2024/a.jpg --index photos.kh -k 5 --json
    """
    from kenthash.errors import UsageError
    from kenthash.search import Index
    from kenthash.search.filters import parse
    from kenthash.search.models import pictures_warning

    if sum(query is not None for query in (words, image, like)) != 1:
        raise UsageError("give one of: words, --image FILE, --like ID")
    condition = None if filter is None else parse(filter)
    with Index.open(index) as opened:
        if (warning := pictures_warning(opened, of_picture=image is not None)) is not None:
            typer.echo(f"note: {warning}", err=True)
        query = _query_code(opened, words, image, like, model)
        hits = opened.search(query, min(k + (like is not None), 10_000), radius, condition)[0]
        bits = opened.bits
    kept = [i for i in range(len(hits)) if hits.ids[i] != like][:k]  # without the item itself, which is the nearest
    if as_json:
        typer.echo(json.dumps([_as_json(hits, i) for i in kept], ensure_ascii=False))
    else:
        _print_hits(hits, kept, bits)


def _query_code(index: "Index", words: str | None, image: Path | None, like: str | None, model: Path | None) -> "Codes":
    """The code to look for, [1, bits/8]."""
    from kenthash.errors import DataError
    from kenthash.search.models import model_for

    if like is not None:
        item = index.get([like])[0]
        if item is None:
            raise DataError(f"{like}: no such id in the index: `kenthash index list` prints them")
        return item.code[None]
    folder = model_for(index, model)
    from kenthash.model.hasher import Hasher  # slow to import, so not before the model is known to be there

    hasher = Hasher.load(folder, "cpu")  # a GPU would take longer to start than one query takes
    return hasher.encode_pictures([image]) if image is not None else hasher.encode_texts([words or ""])


def _as_json(hits: "Hits", i: int) -> dict[str, object]:
    return {"id": hits.ids[i], "distance": int(hits.distances[i]), "metadata": hits.metadata[i]}


def _print_hits(hits: "Hits", kept: list[int], bits: int) -> None:
    if not kept:
        typer.echo("nothing found", err=True)
    protocol = _thumbnail_protocol()
    id_width = max((len(hits.ids[i]) for i in kept), default=0)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    for rank, i in enumerate(kept, 1):
        entry = hits.metadata[i]
        if protocol and isinstance(path := entry.get("path"), str):
            typer.echo(_thumbnail(Path(path), protocol), nl=False)
        line = f"{rank:>3}  {hits.distances[i]:>3} of {bits} bits differ  {hits.ids[i]:<{id_width}}  "
        typer.echo((line + _printable(_description(entry))[: max(columns - len(line), 20)]).rstrip())


def _description(entry: "Metadata") -> str:
    """The first text of an item, as on the page, or else its labels."""
    from kenthash.search.engine import texts_of

    texts, labels = texts_of(entry), entry.get("labels")
    return texts[0] if texts else ", ".join(labels) if isinstance(labels, list) else str(labels or "")


def _printable(text: str) -> str:
    """Without control characters, which could change the terminal's state."""
    return "".join(c if c.isprintable() else " " for c in text)


def _thumbnail_protocol() -> str | None:
    """How the terminal shows pictures, by its environment variables: "kitty", "iterm", or None for not at all.

    Pipes, files and tmux show none.
    """
    if not sys.stdout.isatty() or os.environ.get("TMUX") or os.environ.get("TERM", "").startswith("screen"):
        return None
    if os.environ.get("KITTY_WINDOW_ID") or os.environ.get("TERM") in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    if os.environ.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm"):
        return "iterm"
    return None


def _thumbnail(path: Path, protocol: str) -> str:
    """The escape sequences that draw a picture file in the terminal; "" where the file cannot be opened any more."""
    from kenthash.data.pictures import BadPicture, open_picture

    try:
        picture = open_picture(path, THUMBNAIL_SIDE)
    except BadPicture:
        return ""
    picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    stream = BytesIO()
    picture.save(stream, "PNG")
    data = base64.b64encode(stream.getvalue()).decode()
    if protocol == "iterm":
        return f"\x1b]1337;File=inline=1;height={THUMBNAIL_LINES}:{data}\a\n"
    parts = [data[i : i + KITTY_CHUNK] for i in range(0, len(data), KITTY_CHUNK)]
    sequences = []
    for number, part in enumerate(parts):
        first = f"a=T,f=100,r={THUMBNAIL_LINES}," if number == 0 else ""
        sequences.append(f"\x1b_G{first}m={int(number < len(parts) - 1)};{part}\x1b\\")
    return "".join(sequences) + "\n"
