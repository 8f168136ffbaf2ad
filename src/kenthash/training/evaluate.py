"""Evaluate a run on its query set: `metrics.json`, `per_query_ap.npz`, figures, and a table that a person reads."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kenthash import __version__
from kenthash.codes import pack
from kenthash.data.splits import Protocol
from kenthash.evaluation import (
    DIRECTIONS,
    Evaluation,
    InstanceScores,
    evaluate_codes,
    instance_ndcg,
    instance_scores,
    render_table,
)
from kenthash.evaluation.figures import save_figures
from kenthash.evaluation.inputs import Ties
from kenthash.evaluation.protocols import EpochScore, honest_epoch, paper_number
from kenthash.evaluation.real_valued import real_valued_map
from kenthash.files import atomic_write, read_json, write_json
from kenthash.training.run_folder import Run, write_lock
from kenthash.training.sources import Outputs, VectorSource, caption_outputs

TOWERS = {"i2t": ("image", "text"), "t2i": ("text", "image"), "i2i": ("image", "image"), "t2t": ("text", "text")}
NDCG_K = 10  # of the graded NDCG of own pairs


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
            *self._instance_table(),
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

    def _instance_table(self) -> list[str]:
        """How soon own pairs are found: by codes, with real-valued queries, and with all captions."""
        head = f"{'own pairs':<14}{'R@1':>7}{'R@5':>7}{'R@10':>7}{'median':>8}{'MRR':>8}{'NDCG@10':>9}"
        head += f"{'real query R@10':>18}{'all captions R@10':>20}"
        lines = ["", head, "─" * len(head)]
        for direction in ("i2t", "t2i"):
            m = self.metrics[direction]
            recall = "".join(f"{100 * m['instance_recall'][k]:>7.1f}" for k in ("1", "5", "10"))
            others = [100 * m[name]["instance_recall"]["10"] for name in ("real_valued_query", "all_captions")]
            lines.append(
                f"{DIRECTIONS[direction]:<14}{recall}{m['instance_median_rank']:>8}{m['instance_mrr']:>8.4f}"
                f"{m['instance_ndcg'][str(NDCG_K)]:>9.4f}{others[0]:>18.1f}{others[1]:>20.1f}"
            )
        queries = len(self.evaluations["i2t"].per_query_ap)
        return [
            *lines,
            f"a photo and its first caption, among the {queries:,} query items alone · recall in per cent",
            "",
        ]


def evaluate_run(
    path: Path, data: Path | None = None, ties: Ties = "expected", figures: bool = True, device: str = "auto"
) -> RunEvaluation:
    """Evaluate the run's model in all four directions and write the results, with figures of them or without, into its
    folder. Items are encoded on `device` (see `Hasher.load`), and their codes are ranked on the CPU.

    The example of `train_run` ends with it. A folder that is no run is refused:

        >>> evaluate_run(Path("photos"))
        Traceback (most recent call last):
        kenthash.errors.DataError: photos: no recipe.yaml here, so this is not a run: `kenthash train` makes one
    """
    run = Run.open(path, device)
    if data is not None:
        run = replace(run, recipe=replace(run.recipe, data=str(data)))
    with write_lock(path):
        return _evaluate(run, ties, figures)


def _evaluate(run: Run, ties: Ties, figures: bool) -> RunEvaluation:
    path, source = run.path, run.source()
    outputs = {part: run.outputs(source, getattr(run.split, part)) for part in ("query", "database")}
    labels = {part: source.dataset.labels[getattr(run.split, part)] for part in ("query", "database")}
    evaluations: dict[str, Evaluation] = {}
    real: dict[str, float] = {}
    for direction, (query_tower, database_tower) in TOWERS.items():
        query, database = getattr(outputs["query"], query_tower), getattr(outputs["database"], database_tower)
        evaluations[direction] = evaluate_codes(
            pack(query), pack(database), labels["query"], labels["database"], ties=ties
        )
        real[direction] = round(real_valued_map(query, database, labels["query"], labels["database"]), 6)
    instances = _instances(run, source, outputs["query"], ties)
    metrics = {
        **{
            direction: evaluation.to_json() | instances.get(direction, {})
            for direction, evaluation in evaluations.items()
        },
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


def _instances(run: Run, source: VectorSource, first: Outputs, ties: Ties) -> dict[str, dict[str, Any]]:
    """How soon a photo of the query set finds its own caption, and a caption its photo, among the query set alone.

    With first captions only, as `instance_recall` and its neighbours; and under `all_captions` with all of them, where
    a photo has several captions to find and each caption asks for its photo.
    """
    rows = run.split.query
    labels = source.dataset.labels[rows]
    own = np.arange(len(rows))
    captions, items = caption_outputs(run.network, source, rows)
    image, text, all_texts = pack(first.image), pack(first.text), pack(captions)
    all_captions = {
        "i2t": instance_scores(image, all_texts, own, items, ties=ties),
        "t2i": instance_scores(all_texts, image, items, own, ties=ties),
    }
    result: dict[str, dict[str, Any]] = {}
    for direction, outputs, codes, database in (("i2t", first.image, image, text), ("t2i", first.text, text, image)):
        ndcg = instance_ndcg(codes, database, own, own, labels, labels, NDCG_K)
        result[direction] = {
            **_named(instance_scores(codes, database, own, own, ties=ties)),
            "instance_ndcg": {str(NDCG_K): round(ndcg, 6)},
            "real_valued_query": _named(instance_scores(outputs, database, own, own, ties=ties)),
            "all_captions": _named(all_captions[direction]),
        }
    return result


def _named(scores: InstanceScores) -> dict[str, Any]:
    return {
        "instance_recall": {str(k): round(value, 6) for k, value in scores.recall.items()},
        "instance_median_rank": scores.median_rank,
        "instance_mrr": round(scores.mrr, 6),
    }


def _selection(history: list[dict[str, Any]], protocol: Protocol) -> dict[str, Any]:
    """Which epoch the model is of, and on what it was chosen."""
    scores = [EpochScore(epoch["epoch"], epoch["i2t"], epoch["t2i"]) for epoch in history]
    if protocol == "honest":
        return {"protocol": protocol, "chosen_on": "validation", "epoch": honest_epoch(scores)}
    last = {"protocol": protocol, "chosen_on": "nothing (the last)", "epoch": scores[-1].epoch}
    return last | {"best_on_query": asdict(paper_number(scores))}
