"""`kenthash serve`: the HTTP service and the page. `kenthash mcp`: an index as tools for assistants."""

import json
import math
import os
import sys
import webbrowser
from pathlib import Path

import typer


def serve(
    index: str | None = typer.Option(
        None,
        "--index",
        help="The index: a file, milvus://host:port/name or postgresql://... [default: that of this folder or above]",
    ),
    model: Path | None = typer.Option(None, help="The run that encodes queries. [default: the one noted in the index]"),
    host: str = typer.Option("127.0.0.1", help="The address to listen on; any other than loopback needs a key."),
    port: int = typer.Option(8000, min=0, max=65535, help="The port; 0 for any free one."),
    api_key_file: Path | None = typer.Option(None, help="A file with the key that requests must send."),
    writable: bool = typer.Option(False, "--writable", help="Let requests add, change and remove items."),
    pictures: list[Path] = typer.Option([], help="Show only pictures below this folder. [default: those indexed]"),
    timeout: float = typer.Option(30.0, min=0.1, help="Seconds that a request may take."),
    max_upload: int = typer.Option(20, min=1, help="MiB that a request may send."),
    max_requests: int = typer.Option(64, min=1, help="Requests processed at once; more get status 503."),
    workers: int = typer.Option(1, min=1, max=64, help="Processes that serve; they share the model and the codes."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    log_queries: bool = typer.Option(False, "--log-queries", help="Also log the words of queries."),
    show: bool = typer.Option(False, "--open", help="Open the page in a browser, where there is a screen."),
    as_json: bool = typer.Option(False, "--json", help="Print the address as one JSON value."),
) -> None:
    """Serve an index: a page to search with, and an HTTP API (/docs). Prints its address; logs are JSON lines on
    standard error. SIGTERM ends it after the current requests, within ten seconds; SIGHUP, or a change on disk, reloads
    index and model.

    \b
        cd photos && kenthash serve
        kenthash serve --index photos.kh
        kenthash serve --index photos.kh --host 0.0.0.0 --api-key-file key.txt --port 8080
    """
    from kenthash.encoders.graph import check_runtime_device
    from kenthash.errors import DataError, UsageError
    from kenthash.search.folders.own_index import given_or_own_index

    if not math.isfinite(timeout):
        raise UsageError(f"--timeout {timeout}: give a number of seconds")
    for folder in pictures:
        if not folder.is_dir():
            raise DataError(f"{folder}: there is no such folder")
    try:
        from kenthash.service.auth import read_key
        from kenthash.service.server import serve as run
        from kenthash.service.settings import ServiceSettings
    except ImportError as error:
        raise UsageError(f"the service needs {error.name}: pip install 'kenthash[serve]'") from error
    settings = ServiceSettings(
        given_or_own_index(index),
        model,
        host,
        port,
        key=read_key(api_key_file) if api_key_file is not None else None,
        writable=writable,
        log_queries=log_queries,
        pictures=tuple(pictures),
        seconds=timeout,
        max_body=max_upload << 20,
        max_in_flight=max_requests,
        device=check_runtime_device(device),
        workers=workers,
    )

    def started(url: str, items: int) -> None:
        typer.echo(json.dumps({"url": url, "items": items}) if as_json else f"{items:,} items at {url}")
        # Without a screen `webbrowser` would start a text browser over the log.
        if show and (sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()):
            webbrowser.open(url)

    run(settings, started)


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
