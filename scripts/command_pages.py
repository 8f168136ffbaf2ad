"""A hook of mkdocs: one page per command, made from its `--help` when the site is built."""

from collections.abc import Iterator
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

from kenthash.cli import app

WIDTH = 80  # characters of a line of help, which a page shows without wrapping


def pages() -> Iterator[tuple[str, str]]:
    """The name of every command, in the order of the program, and its page in Markdown."""
    yield from _pages(get_command(app), "kenthash", None)


def _pages(command: Any, name: str, parent: Any) -> Iterator[tuple[str, str]]:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True, max_content_width=WIDTH)
    context.terminal_width = WIDTH
    if hasattr(command, "commands"):
        for word, inner in command.commands.items():
            yield from _pages(inner, word, context)
        return
    path = context.command_path
    summary = " ".join((command.help or "").partition("\n\n")[0].split())
    usage = command.get_help(context)
    yield path, f"# {path}\n\n{summary}\n\n```text\n{click.unstyle(usage)}\n```\n"


def _file(name: str) -> str:
    return f"commands/{'-'.join(name.split()[1:])}.md"


def on_config(config: MkDocsConfig) -> None:
    assert config.nav is not None
    config.nav.append({"Commands": [{name: _file(name)} for name, _ in pages()]})


def on_files(files: Files, config: MkDocsConfig) -> None:
    for name, page in pages():
        files.append(File.generated(config, _file(name), content=page))
