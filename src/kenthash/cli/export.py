"""`kenthash export`: a trained model for other runtimes."""

import json
from pathlib import Path

import typer


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
