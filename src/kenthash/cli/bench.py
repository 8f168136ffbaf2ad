"""`kenthash bench`: speed on this machine, as ratios to named peers in the same run."""

import json
from collections.abc import Mapping
from pathlib import Path

import typer

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True, rich_markup_mode=None)


def show(figures: Mapping[str, float | str], as_json: bool) -> None:
    """Numbers, and words where there is none."""
    if as_json:
        rounded = {name: value if isinstance(value, str) else round(value, 4) for name, value in figures.items()}
        typer.echo(json.dumps(rounded))
        return
    width = max(map(len, figures))
    for name, value in figures.items():
        typer.echo(f"{name:{width}}  {value}" if isinstance(value, str) else f"{name:{width}}  {value:10.3f}")


@app.command("encode")
def encode(
    pictures: Path | None = typer.Option(None, help="A folder of pictures. [default: photos made for this]"),
    encoder: str = typer.Option("light", help="As for `kenthash encode`."),
    items: int = typer.Option(512, min=1, help="The number of pictures to encode."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
) -> None:
    """Encoding from picture files, and `index add`, compared with the bare forward pass on the same pictures."""
    from kenthash.bench.encode import bench_encode

    show(bench_encode(pictures, encoder, items, device=device), as_json)


@app.command("hash")
def hash_data(
    ray: str | None = typer.Option(None, help="A Ray cluster of two processors on this machine, to compare with."),
    pictures: Path | None = typer.Option(None, help="A folder of pictures. [default: photos made for this]"),
    items: int = typer.Option(4000, min=1000, help="The number of pictures to hash."),
    model: str = typer.Option("light", help="As for `kenthash hash`."),
    rounds: int = typer.Option(2, min=1, help="Alternating runs, of which the fastest counts."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
) -> None:
    """Hashing shards by two plain processes with one processor each, compared with a Ray cluster of as many.

    \b
        python scripts/ray_cluster.py kenthash bench hash
    """
    from kenthash.bench.hash_shards import bench_hash

    show(bench_hash(ray, pictures, items, model, rounds), as_json)


@app.command("eval")
def evaluation(
    queries: int = typer.Option(5_000, min=1, help="The number of queries; the usual method takes 20 ms for each."),
    items: int = typer.Option(117_218, min=1, help="Database items, as many as in MS COCO."),
    bits: int = typer.Option(64, help="Code length, a multiple of 8."),
    classes: int = typer.Option(80, min=1, help="The number of classes."),
    rounds: int = typer.Option(2, min=1, help="Alternating runs, of which the best counts."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
) -> None:
    """mAP from histograms, compared with the usual method (one sort per query) on the same codes."""
    from kenthash.bench.evaluation import bench_eval, render

    result = bench_eval(queries, items, bits, classes, rounds)
    typer.echo(json.dumps(result) if as_json else render(result))


@app.command("train")
def train(
    blocks: int = typer.Option(20, min=1, help="Blocks of ten steps per contestant, of which the fastest counts."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
) -> None:
    """A KDPH step compared with a DSPH step, with more classes, its assignments, and the memory of 10,000 classes."""
    from kenthash.bench.training import bench_train

    show(bench_train(blocks), as_json)


@app.command("search")
def search(
    sizes: str = typer.Option("1000000,10000000", help="Numbers of items, separated by commas."),
    kinds: str = typer.Option("clustered,uniform", help="Kinds of codes, separated by commas."),
    rounds: int = typer.Option(3, min=1, help="Alternating runs of single queries, of which the best counts."),
    durable: int = typer.Option(1_000_000, min=0, help="The number of items of an index on disk, timed too; 0: none."),
    stages: int = typer.Option(1_000_000, min=0, help="The number of items of an index of two stages; 0: none."),
    vectors: int = typer.Option(
        1_000_000, min=0, help="The number of items as codes and as quantised float vectors of as many bytes; 0: none."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
) -> None:
    """Exact search in 64-bit codes, compared with faiss, pynear and usearch (as far as they are installed).

    Then indexes on disk: time, bytes, the first search after a write; two stages beside long codes; and codes beside
    quantised float vectors.
    """
    from kenthash.bench.index import bench_index, bench_stages, render_index, render_stages
    from kenthash.bench.search import KINDS, LEAST, bench_search, render
    from kenthash.bench.vectors import bench_vectors, render_vectors
    from kenthash.errors import UsageError

    numbers, names = [number for number in sizes.split(",") if sizes != "0"], kinds.split(",")
    if not all(number.strip().isdecimal() and int(number) >= LEAST for number in numbers):
        raise UsageError(f"--sizes {sizes}: whole numbers from {LEAST:,}, separated by commas; or 0 for none")
    if not set(names) <= set(KINDS):
        raise UsageError(f"--kinds {kinds}: choose from {','.join(KINDS)}")
    records = bench_search([int(number) for number in numbers], names, rounds)
    index = bench_index(durable) if durable else None
    two_stages = bench_stages(stages) if stages else None
    latencies = bench_vectors(vectors) if vectors else None
    if as_json:
        typer.echo(json.dumps({"searches": records, "index": index, "stages": two_stages, "vectors": latencies}))
        return
    parts = [
        render(records),
        render_index(index) if index else "",
        render_stages(two_stages) if two_stages else "",
        render_vectors(latencies) if latencies else "",
    ]
    typer.echo("\n\n".join(part for part in parts if part))


@app.command("start")
def start(
    index: str | None = typer.Option(None, "--index", help="The index to search. [default: one made for this]"),
    rounds: int = typer.Option(5, min=1, help="Runs of which the fastest counts."),
    rclip: Path | None = typer.Option(None, help="The command rclip, to be measured beside kenthash."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
) -> None:
    """One search from the shell in a fresh process, the time of `import kenthash`, and the size of a plain install.

    rclip has its own requirements, so install it into an environment of its own:

    \b
        python -m venv rclip && rclip/bin/pip install rclip==3.3.0
        kenthash bench start --rclip rclip/bin/rclip
    """
    from kenthash.bench.start import bench_start

    show(bench_start(index, rounds, rclip), as_json)


@app.command("duplicates")
def duplicates(
    pictures: Path = typer.Argument(help="A folder of photos."),
    photos: int = typer.Option(1000, min=2, help="The number of photos to draw."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
) -> None:
    """How well `index duplicates` finds edited copies: JPEG of quality 60, half size, 5 % cropped, a line of text."""
    from dataclasses import asdict

    from kenthash.bench.duplicates import bench_duplicates

    figures = bench_duplicates(pictures, photos)
    typer.echo(json.dumps(asdict(figures)) if as_json else figures.text())


@app.command("serve")
def serve(
    items: int = typer.Option(1_000_000, min=1000, help="The number of codes in the index."),
    seconds: float = typer.Option(10.0, min=1, help="The duration for each kind of request."),
    minutes: float = typer.Option(0.0, min=0, help="The duration at the fixed rate, with figures per minute."),
    workers: int = typer.Option(1, min=1, max=64, help="Compare so many workers with one; by id only."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
) -> None:
    """The HTTP service: requests per second and their times, by id (engine and HTTP) and by words (with encoder)."""
    from kenthash.bench.serve import bench_serve, bench_workers, render

    result = bench_serve(items, seconds, minutes) if workers == 1 else bench_workers(workers, items, seconds)
    typer.echo(json.dumps(result) if as_json else render(result))
