"""Evaluate a run on its query set: `metrics.json`, `per_query_ap.npz`, figures, and a table that a person reads."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kenthash import __version__
from kenthash.codes import pack
from kenthash.data.splits import Rows, Split
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.evaluation import (
    DIRECTIONS,
    Evaluation,
    InstanceScores,
    Labels,
    evaluate_codes,
    instance_ndcg,
    instance_scores,
    map_of,
    render_table,
)
from kenthash.evaluation.evaluate import CURVE
from kenthash.evaluation.figures import save_figures, save_instance_figure
from kenthash.evaluation.inputs import Ties
from kenthash.evaluation.protocols import EpochScore, honest_epoch, paper_number
from kenthash.evaluation.real_valued import real_valued_map
from kenthash.evaluation.short_queries import (
    K,
    ShortQueryScores,
    class_texts,
    render_short_queries,
    score_short_queries,
)
from kenthash.files import atomic_write, read_json, write_json
from kenthash.training.recipe import Recipe
from kenthash.training.run_folder import Run, write_lock
from kenthash.training.short_texts import no_short_texts
from kenthash.training.sources import Outputs, VectorSource, caption_outputs
from kenthash.training.supervision import label_fault, measured

TOWERS = {"i2t": ("image", "text"), "t2i": ("text", "image"), "i2i": ("image", "image"), "t2t": ("text", "text")}
NDCG_K = 10  # of the graded NDCG of own pairs
CHOSEN_BY = {"map": "mAP", "recall": "R@10 of own pairs", "both": "mAP, three quarters, and R@10 of own pairs"}


@dataclass(frozen=True)
class RunEvaluation:
    metrics: dict[str, Any]  # as written to metrics.json
    evaluations: dict[str, Evaluation]  # by shared labels, of each direction; none where labels tell nothing

    def text(self) -> str:
        """The tables, what the same outputs reach before signing, how the epoch was chosen, and what is left out."""
        m = self.metrics
        lines = [render_table(self.evaluations)] if self.evaluations else []
        lines += self._instance_table()
        lines += self._nested_table() if "nested" in m else []
        lines += render_short_queries(m["short_queries"]) if "short_queries" in m else []
        if self.evaluations:
            real = " · ".join(f"{DIRECTIONS[d]} {value:.4f}" for d, value in m["real_valued_map"].items())
            lines.append(f"before signing (real values, not codes): {real}")
        chosen = f"protocol {m['protocol']}: epoch {m['epoch']}, chosen on {m['chosen_on']}"
        chosen += f" by {CHOSEN_BY[m['chosen_by']]}" if "chosen_by" in m else ""
        lines.append(f"{m['method']} · seed {m['seed']} · split {m['split']} · {chosen}")
        if best := m.get("best_on_query"):
            lines.append(
                "the field's way, each direction's best epoch on the query set itself: "
                f"image → text {best['i2t']:.4f} (epoch {best['i2t_epoch']}), "
                f"text → image {best['t2i']:.4f} (epoch {best['t2i_epoch']})"
            )
        return "\n".join([*lines, *m["left_out"]])

    def _instance_table(self) -> list[str]:
        """How soon own pairs are found: by codes, with real-valued queries, and with all captions."""
        graded = "instance_ndcg" in self.metrics["i2t"]
        head = f"{'own pairs':<14}{'R@1':>7}{'R@5':>7}{'R@10':>7}{'median':>8}{'MRR':>8}" + graded * f"{'NDCG@10':>9}"
        head += f"{'real query R@10':>18}{'all captions R@10':>20}"
        lines = ["", head, "─" * len(head)] if self.evaluations else [head, "─" * len(head)]
        for direction in ("i2t", "t2i"):
            m = self.metrics[direction]
            recall = "".join(f"{100 * m['instance_recall'][k]:>7.1f}" for k in ("1", "5", "10"))
            others = [100 * m[name]["instance_recall"]["10"] for name in ("real_valued_query", "all_captions")]
            lines.append(
                f"{DIRECTIONS[direction]:<14}{recall}{m['instance_median_rank']:>8}{m['instance_mrr']:>8.4f}"
                + (f"{m['instance_ndcg'][str(NDCG_K)]:>9.4f}" if graded else "")
                + f"{others[0]:>18.1f}{others[1]:>20.1f}"
            )
        queries = f"{self.metrics['i2t']['instance_queries']:,}"
        lines.append(f"a photo and its first caption, among the {queries} query items alone · recall in per cent")
        return [*lines, ""]

    def _nested_table(self) -> list[str]:
        """mAP and recall of own pairs of each length, the whole one last."""
        m = self.metrics
        head = f"{'first bits':<14}" + ("{:>9}{:>9}".format("mAP i→t", "t→i") if self.evaluations else "")
        head += "{:>11}{:>7}".format("R@10 i→t", "t→i")
        lines = [head, "─" * len(head)]
        for bits, scores in {**m["nested"], str(m["bits"]): m}.items():
            directions = [scores["i2t"], scores["t2i"]]
            line = f"{bits:<14}" + "".join(f"{d['map']:>9.4f}" for d in directions if self.evaluations)
            recalls = [100 * d["instance_recall"]["10"] for d in directions]
            lines.append(f"{line}{recalls[0]:>11.1f}{recalls[1]:>7.1f}")
        return [*lines, ""]


def evaluate_run(
    path: Path,
    data: Path | None = None,
    ties: Ties = "expected",
    figures: bool = True,
    device: str = "auto",
    bits: int | None = None,
) -> RunEvaluation:
    """Evaluate the run's model in all four directions and write the results, with figures of them or without, into its
    folder. Items are encoded on `device` (see `Hasher.load`), and their codes are ranked on the CPU.

    Of nested codes each shorter length has its mAP and own pairs under `nested`. All measures of one of them are those
    of `bits`, which are written into a folder `bits-K` of the run.

    The example of `train_run` ends with it. A folder that is no run is refused:

        >>> evaluate_run(Path("photos"))
        Traceback (most recent call last):
        kenthash.errors.DataError: photos: no recipe.yaml here, so this is not a run: `kenthash train` makes one
    """
    run = Run.open(path, device)
    if bits not in (None, run.recipe.bits, *run.recipe.nested):
        raise UsageError(f"--bits {bits}: {run.network.config.lengths()}")
    if data is not None:
        run = replace(run, recipe=replace(run.recipe, data=str(data)))
    with write_lock(path):
        return _evaluate(run, ties, figures, bits or run.recipe.bits)


def _evaluate(run: Run, ties: Ties, figures: bool, bits: int) -> RunEvaluation:
    path, source = run.path, run.source()
    out = path if bits == run.recipe.bits else path / f"bits-{bits}"
    out.mkdir(exist_ok=True)
    labels = source.dataset.labels
    rows, database = measured(labels, source.captions, run.split)
    outputs = run.outputs(source, rows).first_bits(bits)
    ranked = None
    fault = label_fault(labels, source.captions, run.split)
    left_out = left_out_lines(fault, labels, source.captions, run.split)
    evaluations: dict[str, Evaluation] = {}
    real: dict[str, float] = {}
    if not fault:
        ranked = run.outputs(source, database).first_bits(bits)
        evaluations, real = _by_labels(outputs, ranked, labels[rows], labels[database], ties)
    nested = {}
    for length in run.recipe.nested if bits == run.recipe.bits else ():
        first = outputs.first_bits(length)
        nested[str(length)] = _own_pairs(first, ties)
        if ranked is not None:
            of_labels = (labels[rows], labels[database], ties)
            for direction, value in _maps(first, ranked.first_bits(length), *of_labels).items():
                nested[str(length)][direction]["map"] = round(value, 6)
    short = None
    if ranked is not None:
        short, reason = _short_queries(run, source, ranked, labels[database], bits)
        left_out += [f"short queries are left out: {reason}"] if reason else []
    instances = _instances(run, source, rows, outputs, ties, bool(evaluations))
    by_labels = {direction: evaluation.to_json() for direction, evaluation in evaluations.items()}
    metrics = {
        **{
            direction: by_labels.get(direction, {}) | instances.get(direction, {})
            for direction in by_labels or instances
        },
        "real_valued_map": real,
        "method": run.recipe.method,
        "bits": bits,
        **({"nested": nested} if nested else {}),
        **({"short_queries": short.to_json()} if short is not None else {}),
        "seed": run.recipe.seed,
        "ties": ties,
        **_selection(path / "history.json", run.recipe),
        "data": run.recipe.data,
        "data_name": source.dataset.name,
        "data_digest": source.dataset.digest(),
        "split": run.split.digest(),
        "left_out": left_out,
        "code_version": __version__,
    }
    with atomic_write(out / "per_query_ap.npz") as stream:
        ap: dict[str, Any] = {direction: evaluation.per_query_ap for direction, evaluation in evaluations.items()}
        np.savez(stream, **ap)
    if figures:
        if evaluations:
            save_figures(evaluations, out / "figures")
        save_instance_figure(_curves(outputs), bits, out / "figures")
    write_json(out / "metrics.json", metrics)
    return RunEvaluation(metrics, evaluations)


def _by_labels(
    query: Outputs, database: Outputs, query_labels: Labels, database_labels: Labels, ties: Ties
) -> tuple[dict[str, Evaluation], dict[str, float]]:
    """Every measure by shared labels and, apart from them, mAP before signing: both of each direction."""
    evaluations: dict[str, Evaluation] = {}
    real: dict[str, float] = {}
    for direction, (query_tower, database_tower) in TOWERS.items():
        queries, items = getattr(query, query_tower), getattr(database, database_tower)
        codes = pack(queries), pack(items)
        evaluations[direction] = evaluate_codes(*codes, query_labels, database_labels, ties=ties)
        real[direction] = round(real_valued_map(queries, items, query_labels, database_labels), 6)
    return evaluations, real


def _short_queries(
    run: Run, source: VectorSource, database: Outputs, labels: Labels, bits: int
) -> tuple[ShortQueryScores | None, str]:
    """Names of classes in prompts, asked of the pictures of the database; or why that cannot be done."""
    if reason := no_short_texts(source):
        return None, reason
    try:
        with torch.inference_mode():
            vectors = source.written(class_texts(source.dataset.classes))
            outputs = run.network.text_head(vectors).cpu().numpy()[:, :bits]
    except KenthashError as error:  # the encoder is not here: the codes can be scored all the same
        return None, str(error)
    scores = score_short_queries(outputs, pack(database.image), labels, source.dataset.classes)
    return scores, "" if scores is not None else f"no class has {K} pictures in the database"


def left_out_lines(fault: str, labels: Labels, captions: Rows, split: Split) -> list[str]:
    """One line for each thing that could not be measured, and why; `fault` is why labels tell nothing."""
    lines = []
    if fault:
        lines.append(f"mAP and other figures by shared labels are left out: {fault}")
    else:
        unknown = int((~labels[split.database].any(axis=1)).sum())
        if unknown:
            lines.append(f"{unknown:,} database items without labels are left out of the figures by shared labels")
    rows = np.concatenate([split.query, split.database])
    if without := int((captions[rows] == 0).sum()):
        lines.append(f"{without:,} query and database items without a caption are left out of all figures")
    return lines


def _instances(
    run: Run, source: VectorSource, rows: Rows, first: Outputs, ties: Ties, graded: bool
) -> dict[str, dict[str, Any]]:
    """How soon a photo of the query set finds its own caption, and a caption its photo, among the query set alone.

    With first captions only, as `instance_recall` and its neighbours; and under `all_captions` with all of them, where
    a photo has several captions to find and each caption asks for its photo. Grades need labels.
    """
    labels = source.dataset.labels[rows]
    own = np.arange(len(rows))
    captions, items = caption_outputs(run.network, source, rows)
    image, text, all_texts = pack(first.image), pack(first.text), pack(captions[:, : first.text.shape[1]])
    all_captions = {
        "i2t": instance_scores(image, all_texts, own, items, ties=ties),
        "t2i": instance_scores(all_texts, image, items, own, ties=ties),
    }
    result = _own_pairs(first, ties)
    for direction, outputs, codes, database in (("i2t", first.image, image, text), ("t2i", first.text, text, image)):
        result[direction] |= {
            "instance_queries": len(rows),
            "real_valued_query": named_scores(instance_scores(outputs, database, own, own, ties=ties)),
            "all_captions": named_scores(all_captions[direction]),
        }
        if graded:
            ndcg = instance_ndcg(codes, database, own, own, labels, labels, NDCG_K)
            result[direction]["instance_ndcg"] = {str(NDCG_K): round(ndcg, 6)}
    return result


def _own_pairs(outputs: Outputs, ties: Ties) -> dict[str, dict[str, Any]]:
    """Own pairs of codes, in both directions."""
    image, text, own = pack(outputs.image), pack(outputs.text), np.arange(len(outputs.image))
    return {
        direction: named_scores(instance_scores(*codes, own, own, ties=ties))
        for direction, codes in {"i2t": (image, text), "t2i": (text, image)}.items()
    }


def _maps(
    query: Outputs, database: Outputs, query_labels: Labels, database_labels: Labels, ties: Ties
) -> dict[str, float]:
    """mAP of codes, in both directions."""
    return {
        direction: map_of(pack(queries), pack(items), query_labels, database_labels, ties)
        for direction, queries, items in (("i2t", query.image, database.text), ("t2i", query.text, database.image))
    }


def _curves(outputs: Outputs) -> dict[str, dict[int, float]]:
    """Recall of own pairs by the number of items retrieved, for codes and for real-valued queries."""
    own, ks = np.arange(len(outputs.image)), [k for k in CURVE if k <= len(outputs.image)]
    curves = {}
    for direction, query, database in (("i2t", outputs.image, outputs.text), ("t2i", outputs.text, outputs.image)):
        name, codes = DIRECTIONS[direction], pack(database)
        curves[name] = instance_scores(pack(query), codes, own, own, ks).recall
        curves[f"{name}, real-valued query"] = instance_scores(query, codes, own, own, ks).recall
    return curves


def named_scores(scores: InstanceScores) -> dict[str, Any]:
    """As `metrics.json` names them."""
    return {
        "instance_recall": {str(k): round(value, 6) for k, value in scores.recall.items()},
        "instance_median_rank": scores.median_rank,
        "instance_mrr": round(scores.mrr, 6),
    }


def _selection(path: Path, recipe: Recipe) -> dict[str, Any]:
    """Which epoch the model is of, and on what and by which figures it was chosen."""
    history = read_json(path)
    try:
        labelled = "i2t" in history[0]
        prefix = "" if labelled else "recall_"  # without labels, recall of own pairs
        scores = [EpochScore(e["epoch"], e[f"{prefix}i2t"], e[f"{prefix}t2i"], float(e["score"])) for e in history]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not the results of a run's epochs: train the run again") from error
    if recipe.protocol == "honest":
        chosen = {"chosen_on": "validation", "chosen_by": recipe.choose_by if labelled else "recall"}
        return {"protocol": recipe.protocol, **chosen, "epoch": honest_epoch(scores)}
    last = {"protocol": recipe.protocol, "chosen_on": "nothing (the last)", "epoch": scores[-1].epoch}
    return last | {"best_on_query": asdict(paper_number(scores))}
