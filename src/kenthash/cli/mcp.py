"""`kenthash mcp`: an index as tools for assistants."""

from pathlib import Path

import typer


def mcp(
    index: str | None = typer.Option(
        None,
        "--index",
        help="The index: a file, milvus://host:port/name or postgresql://... [default: that of this folder or above]",
    ),
    model: Path | None = typer.Option(None, help="The run that encodes queries. [default: the one noted in the index]"),
) -> None:
    """Let an assistant search an index, by the Model Context Protocol over standard input and output: by words, by a
    picture, and show an item. Nothing can be changed. Assistants start this command themselves; in their settings it is

    \b
        {"mcpServers": {"photos": {"command": "kenthash", "args": ["mcp", "--index", "/home/me/photos/.kenthash.kh"]}}}
    """
    from kenthash.integrations.mcp_server import make_server
    from kenthash.search import Index
    from kenthash.search.folders.own_index import given_or_own_index

    with Index.open(given_or_own_index(index)) as opened:
        make_server(opened, model).run("stdio")
