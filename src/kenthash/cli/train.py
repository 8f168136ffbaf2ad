"""`kenthash train` and `kenthash evaluate`."""

import json
from enum import StrEnum
from pathlib import Path

import typer


class TieRule(StrEnum):
    expected = "expected"
    optimistic = "optimistic"
    pessimistic = "pessimistic"
    stable = "stable"


def train(
    data: Path | None = typer.Option(None, help="A feature pack, or a folder in a layout that `data check` reads."),
    out: Path = typer.Option(..., help="The run folder to write."),
    method: str | None = typer.Option(None, help="The method to train. [default: the recipe's, else kaph]"),
    bits: int | None = typer.Option(None, help="Code length, a multiple of 8. [default: the recipe's, else 64]"),
    seed: int | None = typer.Option(
        None, help="Seed of the split and all random numbers. [default: the recipe's, else 0]"
    ),
    recipe: str | None = typer.Option(None, help="A YAML file, or the name of a recipe of this package."),
    assignments: list[str] = typer.Option([], "--set", help="Change one value: --set settings.epsilon=20"),
    resume: bool = typer.Option(False, "--resume", help="Continue the unfinished run in --out."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the run's metrics as JSON."),
) -> None:
    """Train a method and evaluate it once, into a run folder.

    Settings come from the defaults, the method, the recipe and the options; each overrides the ones before it. The
    result is written to the run's recipe.yaml, from which the same run can be repeated.

    \b
        kenthash train --data packs/scenes --bits 64 --out runs/scenes-64
        kenthash train --data packs/coco --recipe kdph --bits 16 --set settings.epsilon=20 --out runs/try
        kenthash train --resume --out runs/try
        torchrun --nproc-per-node 2 -m kenthash train --data packs/scenes --out runs/two
    """
    import torch

    from kenthash.encoders import check_device
    from kenthash.training.evaluate import evaluate_run
    from kenthash.training.recipe import find_recipe, make_recipe, parse_set, read_recipe
    from kenthash.training.train import train_run

    layers = []
    if resume and (out / "recipe.yaml").is_file():
        layers.append(read_recipe(out / "recipe.yaml"))
    if recipe is not None:
        layers.append(read_recipe(find_recipe(recipe)))
    layers.append(parse_set(assignments))
    given = {"data": str(data) if data else None, "method": method, "bits": bits, "seed": seed}
    layers.append({name: value for name, value in given.items() if value is not None})
    device = check_device(device)
    first = train_run(make_recipe(*layers), out, resume, torch.device(device))
    if first:
        result = evaluate_run(out, device=device)
        typer.echo(json.dumps(result.metrics) if as_json else result.text())


def evaluate(
    run: Path = typer.Argument(..., help="A run folder."),
    data: Path | None = typer.Option(None, help="Where the run's data is now, if it has moved."),
    ties: TieRule = typer.Option(TieRule.expected, help="How items at the same distance are ordered."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the metrics as JSON."),
) -> None:
    """Evaluate a run on its query set; writes metrics.json and figures into the run folder.

    Figures are those of binary codes. mAP is over the whole database, an item is relevant if it shares a label with the
    query, and items at the same distance count by the exact expectation over their orders unless --ties says otherwise.

    \b
        kenthash evaluate runs/scenes-64
        kenthash evaluate runs/scenes-64 --json | jq .i2t.map
    """
    from kenthash.training.evaluate import evaluate_run

    result = evaluate_run(run, data, ties.value, device=device)
    typer.echo(json.dumps(result.metrics) if as_json else result.text())
