"""`kenthash data`: make and check data sets."""

import typer

app = typer.Typer(help="Make and check data sets.", no_args_is_help=True, rich_markup_mode=None)
