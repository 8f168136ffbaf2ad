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
    from kenthash.search.answer import Answer, ScoredHit
    from kenthash.search.engine import Metadata

THUMBNAIL_SIDE = 160  # pixels
THUMBNAIL_LINES = 4  # height of a thumbnail in lines of text
KITTY_CHUNK = 4096  # characters that kitty accepts per escape sequence


def search(
    words: list[str] = typer.Argument(
        [], show_default=False, help="What to look for, in words, with or without quotes around them."
    ),
    index: str | None = typer.Option(
        None,
        "--index",
        help="The index: a file, milvus://host:port/name or postgresql://... [default: that of this folder or above]",
    ),
    image: Path | None = typer.Option(None, help="Look for pictures like this file."),
    like: str | None = typer.Option(None, help="Look for items like this one of the index, given by its id or file."),
    plus: list[str] = typer.Option([], help="And with more of this, in words. May be repeated."),
    without: list[str] = typer.Option([], help="And with less of this, in words. May be repeated."),
    k: int = typer.Option(10, "-k", min=1, max=10_000, help="The number of items to find."),
    radius: int | None = typer.Option(None, min=0, help="Leave out items that differ in more bits than this."),
    min_relevance: float = typer.Option(0, min=0, max=100, help="Leave out items of a lower relevance, in per cent."),
    filter: str | None = typer.Option(None, "--filter", help="\"place = 'beach' and year >= 2020\", on metadata."),
    model: Path | None = typer.Option(
        None, help="The model that encodes the query, as for `index add`. [default: the one noted in the index]"
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the hits as one JSON value."),
) -> None:
    """Find pictures by words, by a picture, or by an item of the index; words can be added to any of them, or taken
    away. Prints the k nearest, nearest first, with their relevance: how many of a hundred hits like this one are right,
    as measured with the model for queries without --plus and --without. Where that is below 50 % for all, nothing here
    is close. Items that have all the words in the names of their file and folders, in their texts or labels come before
    all others, marked `words`.

    \b
        cd photos && kenthash search "two dogs and a kite"
        kenthash search "a street" --without cars --index photos.kh
        kenthash search --image dog.jpg --plus snow --index photos.kh --filter "not place = 'beach'"
        kenthash search --like photos/2024/a.jpg --index photos.kh -k 5 --json
    """
    from kenthash.api import search_index
    from kenthash.errors import UsageError
    from kenthash.search import Index
    from kenthash.search.filters import parse
    from kenthash.search.folders.own_index import given_or_own_index
    from kenthash.search.folders.roots import Roots
    from kenthash.search.models import pictures_warning

    text = " ".join(words) if words else None
    if sum(query is not None for query in (text, image, like)) != 1:
        raise UsageError("give one of: words, --image FILE, --like ID")
    condition = None if filter is None else parse(filter)
    with Index.open(given_or_own_index(index)) as opened:
        roots = Roots(opened)
        warning = pictures_warning(opened, of_picture=image is not None) or roots.unfinished_warning(index)
        if warning is not None:
            typer.echo(f"note: {warning}", err=True)
        query = text if image is None else image
        answer = search_index(opened, query, like, k, radius, condition, plus, without, min_relevance / 100, model)
        bits, is_empty = opened.code_bits, not opened.list_ids(limit=1)
    if not answer.hits.proven:
        typer.echo("note: nearer items may have been missed", err=True)
    paths = [roots.path_of(hit.id, hit.metadata) for hit in answer]
    if as_json:
        hits = [_as_json(hit, path) for hit, path in zip(answer, paths, strict=True)]
        typer.echo(json.dumps(hits, ensure_ascii=False))
    elif len(answer):
        _print_hits(answer, paths, bits)
    if answer.nearest is not None:
        name, relevance = answer.nearest
        typer.echo(f"nothing reaches {min_relevance:g} %; the nearest is {name} with {100 * relevance:.0f} %", err=True)
    elif not len(answer) and not as_json:
        reason = ": the index is empty: fill it with `kenthash index add FOLDER`" if is_empty else ""
        typer.echo(f"nothing found{reason}", err=True)


def _as_json(hit: "ScoredHit", path: Path | None) -> dict[str, object]:
    return {
        "id": hit.id,
        "distance": hit.distance,
        "weighted": round(hit.weighted, 4),
        "relevance": None if hit.relevance is None else round(hit.relevance, 3),
        "by_words": hit.by_words,
        "metadata": hit.metadata,
        "path": None if path is None else str(path),
    }


def _print_hits(answer: "Answer", paths: list[Path | None], bits: int) -> None:
    if answer.nothing_is_close:
        typer.echo("nothing here is close; the nearest are:")
    protocol = _thumbnail_protocol()
    names = [hit.id if path is None else _from_here(path) for hit, path in zip(answer, paths, strict=True)]
    width = max(map(len, names), default=0)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    for rank, (hit, path, name) in enumerate(zip(answer, paths, names, strict=True), 1):
        if protocol and path is not None:
            typer.echo(_thumbnail(path, protocol), nl=False)
        score = (
            f"{hit.distance:>3} of {bits} bits differ" if hit.relevance is None else f"{100 * hit.relevance:>3.0f} %"
        )
        if hit.by_words:
            score = f"{'words':<{len(score)}}"
        line = f"{rank:>3}  {score}  {name:<{width}}  "
        typer.echo((line + _printable(_description(hit.metadata))[: max(columns - len(line), 20)]).rstrip())


def _from_here(path: Path) -> str:
    """A path as short as it can be typed from here."""
    return min(str(path), os.path.relpath(path), key=len)


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
