"""`kenthash train` and `kenthash evaluate`."""

import json
from enum import StrEnum
from pathlib import Path

import typer

from kenthash.errors import UsageError


class TieRule(StrEnum):
    expected = "expected"
    optimistic = "optimistic"
    pessimistic = "pessimistic"
    stable = "stable"


def train(
    data: Path | None = typer.Option(None, help="A feature pack, or a folder in a layout that `data check` reads."),
    out: Path = typer.Option(..., help="The run folder to write."),
    method: str | None = typer.Option(None, help="The method to train. [default: the recipe's, else kcph]"),
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
    result is written to the run's recipe.yaml, from which the same run can be repeated. The default method goes on from
    the heads of the pretrained model of the data's encoder, clip or light; --set start= begins with random ones.

    \b
        kenthash train --data packs/scenes --bits 64 --out runs/scenes-64
        kenthash train --data packs/coco --recipe kdph --bits 16 --set settings.epsilon=20 --out runs/try
        kenthash train --resume --out runs/try
        torchrun --nproc-per-node 2 -m kenthash train --data packs/scenes --out runs/two
    """
    from kenthash.api import train as train_and_evaluate
    from kenthash.training.recipe import parse_set

    result = train_and_evaluate(data, out, method, bits, seed, recipe, parse_set(assignments), resume, device)
    if result is not None:
        typer.echo(json.dumps(result.metrics) if as_json else result.text())


def evaluate(
    run: Path | None = typer.Argument(None, help="A run folder."),
    codes: Path | None = typer.Option(None, help="A folder of codes by any method; docs/evaluation.md says its files."),
    data: Path | None = typer.Option(
        None, help="The data of --codes; of a run, where its data is now if it has moved."
    ),
    bits: int | None = typer.Option(None, help="Of a run with nested codes: the number of first bits to evaluate."),
    ties: TieRule = typer.Option(TieRule.expected, help="How items at the same distance are ordered."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the metrics as JSON."),
) -> None:
    """Evaluate a run, or codes of any method, on the query set; writes metrics.json into the folder, and figures of a
    run.

    Figures are those of binary codes. mAP is over the whole database, an item is relevant if it shares a label with the
    query, and items at the same distance count by the exact expectation over their orders unless --ties says otherwise.

    \b
        kenthash evaluate runs/scenes-64
        kenthash evaluate runs/scenes-64 --json | jq .i2t.map
        kenthash evaluate runs/nested-256 --bits 64
        kenthash evaluate --codes theirs/codes-64 --data packs/scenes
    """
    if (run is None) == (codes is None):
        raise UsageError("give either a run folder or --codes DIR")
    if run is None:
        assert codes is not None
        from kenthash.data.readers import read_dataset
        from kenthash.studies.submission import evaluate_submission

        if bits is not None:
            raise UsageError("--bits is for a run: codes in a folder have the length that they have")
        if data is None:
            raise UsageError("--codes needs --data: the feature pack or folder that the codes are of")
        scored = evaluate_submission(codes, read_dataset(data), ties.value)
        typer.echo(json.dumps(scored.metrics) if as_json else scored.text())
        return
    from kenthash.training.evaluate import evaluate_run

    result = evaluate_run(run, data, ties.value, device=device, bits=bits)
    typer.echo(json.dumps(result.metrics) if as_json else result.text())
