"""`kenthash analyze`: the paper's proxy measures of one run."""

import json
from pathlib import Path

import typer


def analyze(
    run: Path = typer.Argument(..., help="A run folder."),
    data: Path | None = typer.Option(None, help="Where the run's data is now, if it has moved."),
    groups: Path | None = typer.Option(
        None, help="JSON file of group name → class names, for topology. [default: groups.json in the data]"
    ),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the measures as JSON."),
) -> None:
    """The paper's measures of one finished run: precision of classes and hardest labels, GTSD, topology, oscillation.

    Codes are of the run's model, proxies of its last epoch. Flip rate and Chaos Index need a record of every epoch,
    which the dsph and kdph runs of `kenthash reproduce` have. What cannot be measured is named, with the reason.

    \b
        kenthash analyze runs/scenes-64
        kenthash analyze study/runs/kdph-64-0 --json | jq .chaos
    """
    from kenthash.studies.single import analyse, as_text

    result = analyse(run, data, groups, device)
    if as_json:
        for line in result["left_out"]:
            typer.echo(line, err=True)
    typer.echo(json.dumps(result, ensure_ascii=False) if as_json else as_text(result))
