"""Evaluate a run on its query set: `metrics.json`, `per_query_ap.npz`, figures, and a table that a person reads."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kenthash import __version__
from kenthash.codes import pack
from kenthash.data.splits import Protocol
from kenthash.evaluation import DIRECTIONS, Evaluation, evaluate_codes, render_table
from kenthash.evaluation.figures import save_figures
from kenthash.evaluation.inputs import Ties
from kenthash.evaluation.protocols import EpochScore, honest_epoch, paper_number
from kenthash.evaluation.real_valued import real_valued_map
from kenthash.files import atomic_write, read_json, write_json
from kenthash.training.run_folder import Run, writing

TOWERS = {"i2t": ("image", "text"), "t2i": ("text", "image"), "i2i": ("image", "image"), "t2t": ("text", "text")}


@dataclass(frozen=True)
class RunEvaluation:
    metrics: dict[str, Any]  # as written to metrics.json
    evaluations: dict[str, Evaluation]  # by direction

    def text(self) -> str:
        """The table, what the same outputs reach before signing, and how the epoch was chosen."""
        m = self.metrics
        real = " · ".join(f"{DIRECTIONS[d]} {value:.4f}" for d, value in m["real_valued_map"].items())
        chosen = f"protocol {m['protocol']}: epoch {m['epoch']}, chosen on {m['chosen_on']}"
        lines = [
            render_table(self.evaluations),
            f"before signing (real values, not codes): {real}",
            f"{m['method']} · seed {m['seed']} · split {m['split']} · {chosen}",
        ]
        if best := m.get("best_on_query"):
            lines.append(
                "the field's way, each direction's best epoch on the query set itself: "
                f"image → text {best['i2t']:.4f} (epoch {best['i2t_epoch']}), "
                f"text → image {best['t2i']:.4f} (epoch {best['t2i_epoch']})"
            )
        return "\n".join(lines)


def evaluate_run(
    path: Path, data: Path | None = None, ties: Ties = "expected", figures: bool = True, device: str = "auto"
) -> RunEvaluation:
    """Evaluate the run's model in all four directions and write the results, with figures of them or without, into its
    folder. Items are encoded on `device` (see `Hasher.load`), and their codes are ranked on the CPU."""
    run = Run.open(path, device)
    if data is not None:
        run = replace(run, recipe=replace(run.recipe, data=str(data)))
    with writing(path):
        return _evaluate(run, ties, figures)


def _evaluate(run: Run, ties: Ties, figures: bool) -> RunEvaluation:
    path, source = run.path, run.source()
    outputs = {part: run.outputs(source, getattr(run.split, part)) for part in ("query", "database")}
    labels = {part: source.dataset.labels[getattr(run.split, part)] for part in ("query", "database")}
    evaluations: dict[str, Evaluation] = {}
    real: dict[str, float] = {}
    for direction, (asked, found) in TOWERS.items():
        query, database = getattr(outputs["query"], asked), getattr(outputs["database"], found)
        evaluations[direction] = evaluate_codes(
            pack(query), pack(database), labels["query"], labels["database"], ties=ties
        )
        real[direction] = round(real_valued_map(query, database, labels["query"], labels["database"]), 6)
    metrics = {
        **{direction: evaluation.to_json() for direction, evaluation in evaluations.items()},
        "real_valued_map": real,
        "method": run.recipe.method,
        "bits": run.recipe.bits,
        "seed": run.recipe.seed,
        "ties": ties,
        **_selection(read_json(path / "history.json"), run.recipe.protocol),
        "data": run.recipe.data,
        "split": run.split.digest(),
        "code_version": __version__,
    }
    with atomic_write(path / "per_query_ap.npz") as stream:
        ap: dict[str, Any] = {direction: evaluation.per_query_ap for direction, evaluation in evaluations.items()}
        np.savez(stream, **ap)
    if figures:
        save_figures(evaluations, path / "figures")
    write_json(path / "metrics.json", metrics)
    return RunEvaluation(metrics, evaluations)


def _selection(history: list[dict[str, Any]], protocol: Protocol) -> dict[str, Any]:
    """Which epoch the model is of, and on what it was chosen."""
    scores = [EpochScore(record["epoch"], record["i2t"], record["t2i"]) for record in history]
    if protocol == "honest":
        return {"protocol": protocol, "chosen_on": "validation", "epoch": honest_epoch(scores)}
    last = {"protocol": protocol, "chosen_on": "nothing (the last)", "epoch": scores[-1].epoch}
    return last | {"best_on_query": asdict(paper_number(scores))}
