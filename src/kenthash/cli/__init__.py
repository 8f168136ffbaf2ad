"""The `kenthash` command. One short function a command; the logic lives in the rooms they call.

Standard output carries results only (with --json: one JSON value); logs, progress and errors go to standard error.
Exit code 0: done, 1: failed, 2: misused. The rooms are imported inside the commands, so that `--help` is quick.
"""

import logging
import sys

import typer

from kenthash.cli import analyze, bench, compare, data, demo, encode, export, index, reproduce, search, serve, train
from kenthash.errors import KenthashError

app = typer.Typer(
    name="kenthash",
    help="Text and picture search in a few bytes an item, and the study of how to learn such codes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo")(demo.demo)
app.add_typer(data.app, name="data")
app.command("encode")(encode.encode)
app.command("train")(train.train)
app.command("evaluate")(train.evaluate)
app.command("compare")(compare.compare)
app.command("reproduce")(reproduce.reproduce)
app.command("analyze")(analyze.analyze)
app.command("export")(export.export)
app.add_typer(index.app, name="index")
app.command("search")(search.search)
app.command("serve")(serve.serve)
app.add_typer(bench.app, name="bench")


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log what is done on standard error."),
) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.WARNING,
        format="%(levelname)s: %(message)s",
    )
    if version:
        from kenthash import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    try:
        app()
    except KenthashError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:  # a full disk, a folder that may not be written: outside kenthash, so no trace
        logging.info("where it happened", exc_info=True)
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"error: {where}{error.strerror or ' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(KenthashError.exit_code)
