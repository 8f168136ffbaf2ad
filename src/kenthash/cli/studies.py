"""`kenthash compare`, `leaderboard`, `reproduce` and `analyze`: methods in one table, results of many folders on one
page, the paper's figures, the measures of one run."""

import json
from pathlib import Path

import typer


def compare(
    data: Path = typer.Option(..., help="A feature pack, or a folder in a layout that `data check` reads."),
    out: Path = typer.Option(..., help="The folder of the comparison: its runs, table and figure."),
    methods: str = typer.Option(
        "all", help="`all`, or names, separated by commas, of methods and controls (cosine, pq, ...)."
    ),
    bits: str = typer.Option("16,32,64", help="Code lengths, separated by commas."),
    seeds: int = typer.Option(3, min=1, help="Number of runs of each method at each length, with seeds 0, 1, ..."),
    tune: int = typer.Option(0, min=0, help="Number of settings to try for each method, on validation data only."),
    assignments: list[str] = typer.Option([], "--set", help="Change one value for all runs: --set head.hidden=1024"),
    as_json: bool = typer.Option(False, "--json", help="Print the tables, and the files that were written, as JSON."),
) -> None:
    """Train every method at every length and seed, and write the paper's Table 1 for this data.

    Finished runs are kept: run the same command again after an interruption, or with other methods, whose rows are
    added to the table. Writes table.md, table.tex, table.csv and figure.png/.svg. Bold is ahead of every other by a
    paired test that the note names; a tie is not bold.

    \b
        kenthash compare --data packs/scenes --methods kdph,dsph,cosine --bits 16,64 --seeds 3 --out compare
    """
    from kenthash.studies.compare import Comparison, compare_sheets, parse_bits, parse_methods
    from kenthash.training.recipe import parse_set

    lengths, names = parse_bits(bits), parse_methods(methods)
    tables = compare_sheets(Comparison(data, out, names, lengths, seeds, parse_set(assignments), tune))
    if as_json:
        result = {"written": _written(out), "tables": [table.to_json() for table in tables]}
        typer.echo(json.dumps(result, ensure_ascii=False))
        return
    typer.echo("\n".join(table.markdown() for table in tables), nl=False)


def _written(folder: Path) -> list[str]:
    """The tables and figures in a folder."""
    return sorted(str(path) for path in folder.iterdir() if path.is_file())


def leaderboard(
    folders: list[Path] = typer.Argument(
        ..., help="Folders with results: of `compare`, `train` or `evaluate --codes`."
    ),
    out: Path = typer.Option(Path("leaderboard.html"), help="The page to write."),
    as_json: bool = typer.Option(False, "--json", help="Print the table, and the page that was written, as JSON."),
) -> None:
    """Rank the results in any folders, own or other people's, on one page.

    Every run and every evaluated submission below the folders becomes part of a row. Results are ranked together only
    if data, split, protocol, tie rule and version of the evaluator are the same; what differs is refused. The page
    opens offline; its tables are sorted by a click, and it holds the recipe behind each row.

    \b
        kenthash leaderboard compare theirs/codes-64 --out leaderboard.html
    """
    from kenthash.files import atomic_write
    from kenthash.studies.leaderboard import make_leaderboard

    board = make_leaderboard(folders)
    with atomic_write(out, "w") as stream:
        stream.write(board.page())
    if as_json:
        tables = [board.sheet(), *([board.published] if board.published else [])]
        result = {"written": [str(out)], "tables": [table.to_json() for table in tables], "recipes": board.recipes}
        typer.echo(json.dumps(result, ensure_ascii=False))
        return
    typer.echo(board.sheet().markdown(), nl=False)
    typer.echo(f"\nthe page: {out}")


def reproduce(
    target: str = typer.Argument(
        ...,
        help="table1, baseline, trajectories, oscillation, chaos, collapse, gtsd, topology, tsne, ablation, "
        "sensitivity, conflicts, causes, shape, bytes, or all of these; noise, missing, few, unseen, transfer, long, "
        "nested, companions. Without labels: bytes, missing, few, transfer, long, nested.",
    ),
    data: Path = typer.Option(..., help="A feature pack, or a folder in a layout that `data check` reads."),
    out: Path = typer.Option(..., help="The folder of the study: its runs, and one folder per target."),
    bits: str = typer.Option(
        "16,32,64",
        help="Code lengths, separated by commas. table1, baseline, shape, bytes and nested take all, causes and "
        "conflicts the shortest and the longest, companions the shortest, the others the longest; long goes on from "
        "there to 512.",
    ),
    seeds: int = typer.Option(3, min=1, help="Number of runs of each setting, with seeds 0, 1, ..."),
    epochs: int = typer.Option(20, help="Epochs of every run."),
    groups: Path | None = typer.Option(
        None, help="JSON file of group name → class names, for topology. [default: groups.json in --data]"
    ),
    other: Path | None = typer.Option(None, help="The data set that transfer asks: encoded as --data is."),
    as_json: bool = typer.Option(False, "--json", help="Print the tables, and the files that were written, as JSON."),
) -> None:
    """Measure what the paper measures: a table and figures per target, or all targets and a report of them.

    Finished runs are kept: run the same command again after an interruption, or another target with the same --out.
    Each target writes table.md, .tex, .csv and figures as .png and .svg into OUT/TARGET; `all` also writes
    OUT/report.html, which opens offline.

    \b
        kenthash reproduce oscillation --data packs/coco --out study
        kenthash reproduce ablation --data packs/scenes --bits 32 --seeds 1 --out study
        kenthash reproduce all --data packs/coco --out study
        kenthash reproduce noise --data packs/coco --bits 32 --out study
    """
    from kenthash.studies.compare import parse_bits
    from kenthash.studies.reproduce import reproduce as run
    from kenthash.studies.study import Study

    outcomes = run(Study(data, out, parse_bits(bits), seeds, epochs, groups, other), target)
    if as_json:
        written = [path for outcome in outcomes for path in _written(out / outcome.target)]
        written += [str(out / "report.html")] if target == "all" else []
        result = {"written": written, "targets": [outcome.to_json() for outcome in outcomes]}
        typer.echo(json.dumps(result, ensure_ascii=False))
        return
    for outcome in outcomes:
        typer.echo(outcome.text())
    if target == "all":
        typer.echo(f"\nthe report: {out / 'report.html'}")


def analyze(
    run: Path = typer.Argument(..., help="A run folder."),
    data: Path | None = typer.Option(None, help="Where the run's data is now, if it has moved."),
    groups: Path | None = typer.Option(
        None, help="JSON file of group name → class names, for topology. [default: groups.json in the data]"
    ),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 ... [auto: a GPU where there is one]"),
    as_json: bool = typer.Option(False, "--json", help="Print the measures as JSON."),
) -> None:
    """Print the paper's measures of one finished run: precision per class and of the hardest label, GTSD, topology,
    oscillation.

    Codes are those of the run's model, proxies those of its last epoch. Flip rate and Chaos Index need a record of
    every epoch, which the dsph and kdph runs of `kenthash reproduce` have. What cannot be measured is listed
    with the reason.

    \b
        kenthash analyze runs/scenes-64
        kenthash analyze study/runs/kdph-64-0 --json | jq .chaos
    """
    from kenthash.studies.analyze import analyse, as_text

    result = analyse(run, data, groups, device)
    if as_json:
        for line in result["left_out"]:
            typer.echo(line, err=True)
    typer.echo(json.dumps(result, ensure_ascii=False) if as_json else as_text(result))
