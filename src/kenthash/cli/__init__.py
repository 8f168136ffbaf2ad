"""The `kenthash` command: one short function per command, which parses, calls the package and prints.

Standard output carries results only (with --json: one JSON value); logs, progress and errors go to standard error.
Exit code 0: done, 1: failed, 2: misused. Commands import what they need when they are called, so that `--help` is fast.
"""

import logging
import sys
from importlib.util import find_spec
from pathlib import Path

import typer

from kenthash.cli import bench, data, index, models, search, serve, studies, train
from kenthash.errors import EXTRAS, KenthashError, UsageError, missing_extra

app = typer.Typer(
    name="kenthash",
    help="Text and picture search in a few bytes per item, and the study of how to learn such codes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
def demo(
    out: Path = typer.Option(Path("demo"), help="The folder for everything that the demo writes."),
    items: int = typer.Option(4_000, min=200, help="The number of pictures to generate."),
) -> None:
    """Run everything once: generate pictures, search a folder of them, learn codes, evaluate them, index and search.

    Finished parts are kept: a second run reuses them.
    """
    missing = [extra for extra in ("scenes", "train") if not all(map(find_spec, EXTRAS[extra]))]
    if missing:
        raise UsageError(f"the demo needs more packages: pip install 'kenthash[{','.join(missing)}]'")
    from kenthash.demo import run_demo

    run_demo(out, items, typer.echo)


app.add_typer(data.app, name="data")
app.command("encode")(data.encode)
app.command("hash")(data.hash_data)
app.command("train")(train.train)
app.command("evaluate")(train.evaluate)
app.command("compare")(studies.compare)
app.command("leaderboard")(studies.leaderboard)
app.command("reproduce")(studies.reproduce)
app.command("analyze")(studies.analyze)
app.command("export")(models.export)
app.add_typer(models.app, name="models")
app.add_typer(index.app, name="index")
app.command("search")(search.search)
app.command("serve")(serve.serve)
app.command("mcp")(serve.mcp)
app.add_typer(bench.app, name="bench")


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log progress on standard error."),
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
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        print(f"error: {missing}", file=sys.stderr)
        sys.exit(missing.exit_code)
    except OSError as error:  # such as a full disk or a read-only folder: not a fault of kenthash, so no trace
        logging.info("where it happened", exc_info=True)
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"error: {where}{error.strerror or ' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(KenthashError.exit_code)
    except (MemoryError, RuntimeError) as error:
        if not _no_memory(error):
            raise
        logging.info("where it happened", exc_info=True)
        print(f"error: there is not enough memory: {' '.join(str(error).split())[:200]}", file=sys.stderr)
        sys.exit(KenthashError.exit_code)


def _no_memory(error: Exception) -> bool:
    """PyTorch raises a plain RuntimeError when the CPU's memory is at its end, and a kind of its own for a GPU's."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in str(error)
