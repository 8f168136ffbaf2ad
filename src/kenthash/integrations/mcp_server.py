"""An index as tools for assistants, by the Model Context Protocol: `kenthash mcp`.

An assistant can search by words and by a picture, and look at an item. It can read nothing else of this machine than
the pictures of the index, but for the picture that it searches by, which has to be named. Nothing can be changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from kenthash import __version__
from kenthash.api import hasher_of, search_index
from kenthash.data.pictures import open_picture
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.search import Index
from kenthash.search.filters import parse
from kenthash.search.folders.roots import Roots
from kenthash.search.metadata import check_public, public

SIDE = 512  # pixels of a picture that is shown
MOST = 100  # hits of one search
NONE: list[str] = []


def make_server(index: Index, model: Path | None = None) -> "MCPServer[Any]":
    """The tools of an index, whose queries are encoded by the model that is noted in it, or by `model`."""
    hasher = hasher_of(index, model)
    server: MCPServer[Any] = MCPServer(
        "kenthash",
        instructions="Find pictures by what they show, or by their names. Distances are bits that differ: fewer is "
        "nearer. Relevance is how often such hits are right: below 0.5 a hit is more likely wrong.",
        version=__version__,
        log_level="WARNING",
    )

    def hits_of(query: str | Path, k: int, filter: str, plus: list[str], without: list[str]) -> list[dict[str, Any]]:
        if not 1 <= k <= MOST:
            raise UsageError(f"k = {k}: must be from 1 to {MOST}")
        if filter:
            check_public(parse(filter))
        answer = search_index(index, query, k=k, filter=filter or None, plus=plus, without=without, model=hasher)
        roots = Roots(index)  # which may have changed since the last call
        return [
            {
                "id": hit.id,
                "distance": hit.distance,
                "relevance": None if hit.relevance is None else round(hit.relevance, 3),
                "by_words": hit.by_words,
                **_describe(roots, hit.id, hit.metadata),
            }
            for hit in answer
        ]

    @server.tool()  # type: ignore[untyped-decorator]
    def search_by_words(
        words: str, k: int = 10, filter: str = "", plus: list[str] = NONE, without: list[str] = NONE
    ) -> list[dict[str, Any]]:
        """Find the k pictures nearest to a description, nearest first; those that have all the words in their names,
        texts or labels come before (`by_words`). `filter` is on metadata, as in year >= 2020 and place = 'beach';
        `plus` and `without` have words to add to the query and to take away from it."""
        with _reported_errors():
            return hits_of(words, k, filter, plus, without)

    @server.tool()  # type: ignore[untyped-decorator]
    def search_by_picture(
        path: str, k: int = 10, filter: str = "", plus: list[str] = NONE, without: list[str] = NONE
    ) -> list[dict[str, Any]]:
        """Find the k pictures most like a picture file on this machine, nearest first. `plus` and `without` have words
        to add to it and to take away."""
        with _reported_errors():
            return hits_of(Path(path), k, filter, plus, without)

    @server.tool(structured_output=False)  # type: ignore[untyped-decorator]
    def show(id: str) -> list[Any]:
        """Look at an item of the index: its picture, made small, and what is known about it."""
        with _reported_errors():
            (item,) = index.get([id])
            if item is None:
                raise DataError(f"{id}: no such id in the index")
            described = {"id": id, **_describe(roots := Roots(index), id, item.metadata)}
            path = roots.path_of(id, item.metadata)
            return [described] if path is None else [Image(data=_small(path), format="jpeg"), described]

    return server


@contextmanager
def _reported_errors() -> Iterator[None]:
    """Let the assistant know what was wrong: the library hides all errors but its own."""
    try:
        yield
    except KenthashError as error:
        raise ToolError(str(error)) from error


def _describe(roots: Roots, id: str, metadata: dict[str, Any]) -> dict[str, Any]:
    path = roots.path_of(id, metadata)
    return {"path": None if path is None else str(path), "metadata": public(metadata)}


def _small(path: Path) -> bytes:
    picture = open_picture(path, SIDE)
    picture.thumbnail((SIDE, SIDE))
    stream = BytesIO()
    picture.convert("RGB").save(stream, "JPEG", quality=85)
    return stream.getvalue()
