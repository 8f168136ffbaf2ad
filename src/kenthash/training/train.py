"""Train a run: from a recipe to a run folder, whole or resumable at any moment."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kenthash.codes import pack
from kenthash.data.dataset import Dataset
from kenthash.data.splits import Rows, Split, make_split
from kenthash.encoders import check_device, load_encoder
from kenthash.errors import DataError, UsageError
from kenthash.evaluation import map_of, per_query_ap
from kenthash.evaluation.measures import mean_ap
from kenthash.files import write_json
from kenthash.training.checkpoint import copy_weights, load_checkpoint, save_checkpoint
from kenthash.training.distributed import process_group, rank, wait_for_all
from kenthash.training.loop import Training
from kenthash.training.recipe import Recipe, make_recipe, read_recipe, write_recipe
from kenthash.training.record import Recorder
from kenthash.training.run_folder import LOCK, open_source, write_lock
from kenthash.training.sources import VectorSource, head_outputs

EpochResult = dict[str, Any]  # an entry of history.json: mean loss and terms, mAP, seconds


def train_run(
    recipe: Recipe,
    out: Path,
    resume: bool = False,
    device: torch.device | None = None,
    quiet: bool = False,
    record: bool = False,
) -> bool:
    """Train `recipe` into the run folder `out`. A finished run is left as it is; an unfinished one needs `resume`.

    With `record`, proxies and a sample of outputs are kept after every epoch (`training/record.py`).
    Returns whether this is the first process of its group, which is the one to report.

    Example, of 80 items with four labels whose vectors are the labels:

        >>> from tempfile import mkdtemp
        >>> import numpy as np
        >>> from kenthash.data.dataset import Dataset
        >>> from kenthash.data.pack import write_pack
        >>> from kenthash.training.recipe import make_recipe
        >>> labels = np.eye(4, dtype=np.uint8)[np.arange(80) % 4]
        >>> dataset = Dataset("four", [f"item {i}" for i in range(80)], labels, list("abcd"), texts=[["text"]] * 80)
        >>> folder, vectors = Path(mkdtemp()), [labels.astype(np.float16)]
        >>> write_pack(folder / "pack", folder / "unfinished", dataset, vectors, vectors, {})
        >>> recipe = make_recipe({"data": str(folder / "pack"), "bits": 16, "epochs": 2, "batch": 16})
        >>> train_run(recipe, folder / "run", quiet=True)
        True
        >>> from kenthash.training.evaluate import evaluate_run
        >>> evaluate_run(folder / "run", figures=False).evaluations["i2t"].queries
        8
    """
    device = device or torch.device(check_device("auto"))
    with process_group(device):
        if rank() == 0:
            _check_folder(recipe, out, resume)
        if _finished(out):
            return rank() == 0
        encoder = None
        if recipe.encoder.trainable:
            encoder = load_encoder(recipe.encoder.spec, device=str(device), trainable=True)
        source = open_source(recipe, device, encoder, lambda dataset: _check_labels(dataset, _split(recipe, dataset)))
        split = _split(recipe, source.dataset)
        training = Training(recipe, source, split.train, device)  # before anything is written: there may be no memory
        with write_lock(out) if rank() == 0 else nullcontext():
            if rank() == 0:
                _check_folder(recipe, out, resume)  # again, since another process may have begun a run here meanwhile
                write_recipe(out / "recipe.yaml", recipe)
                split.save(out / "split.npz")
            with _threads(None if encoder is not None else 1):
                recorder = Recorder(out, training, split) if record and rank() == 0 else None
                best, history = _epochs(training, source, split, out, quiet, recorder)
            if rank() == 0:
                _save(training, best, history, out)
            wait_for_all()
        return rank() == 0


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Train with so many threads. Heads on frozen vectors are too small to share: one thread is as fast on an idle
    machine and several times faster on a busy one, and adds up in the same order on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _finished(out: Path) -> bool:
    return (out / "model" / "config.json").is_file()


def _check_folder(recipe: Recipe, out: Path, resume: bool) -> None:
    if (out / "recipe.yaml").exists():
        if not resume:
            raise UsageError(f"{out}: holds a run already: go on with it by --resume, or choose another --out")
        written = read_recipe(out / "recipe.yaml")
        stored = make_recipe(written)  # what a later version has added is at its default
        if written.get("settings", {}).keys() != stored.settings.keys() and not _finished(out):
            raise UsageError(
                f"{out}: was begun by a version of kenthash in which {stored.method} had other settings: "
                "finish it with that version, or choose another --out"
            )
        if stored != recipe:
            changed = ", ".join(f.name for f in fields(recipe) if getattr(stored, f.name) != getattr(recipe, f.name))
            raise UsageError(f"{out}: was begun with another recipe, which differs in {changed}: resume with that one")
    elif out.exists() and any(e.suffix != ".partial" and e.name != LOCK for e in out.iterdir()):  # which a kill leaves
        raise UsageError(f"{out}: is not empty and not a run: choose another --out")


def _split(recipe: Recipe, dataset: Dataset) -> Split:
    return make_split(len(dataset), recipe.seed, recipe.protocol, **asdict(recipe.split))


def _check_labels(dataset: Dataset, split: Split) -> None:
    """Refuse labels that teach nothing, or by which nothing can be measured: items are relevant to each other where
    they share one."""
    labels = dataset.labels > 0
    train, number = labels[split.train], len(split.train)
    ranked = labels[split.validation_database()]  # its first items are the validation items themselves
    fault = ""
    if not labels.any():
        fault = "its items have no labels"
    elif not (train.sum(axis=0) > 1).any():
        fault = f"no two of the {number} training items share a label"
    elif (train == train[0]).all():
        fault = f"all {number} training items have the same labels"
    elif split.protocol == "honest" and not labels[split.validation][:, ranked.sum(axis=0) > 1].any():
        fault = "no validation item shares a label with an item that it is ranked against"
    elif not (labels[split.query].any(axis=0) & labels[split.database].any(axis=0)).any():
        fault = "no query shares a label with an item of the database"
    if fault:
        raise DataError(f"{dataset.name}: {fault}: training needs labels that some items share and others do not")


class Events:
    """TensorBoard events: every loss term, the gradient's norm, what the method watches, the balance of bits.

    Written to `folder`; a process that is not the first of its group writes nothing.
    """

    def __init__(self, folder: Path, write: bool) -> None:
        self._writer: Any = None
        if write:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def measures(self, step: int, values: dict[str, Tensor]) -> None:
        """The mean, and the histogram of what has more than one value."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{name}/mean", value.mean().item(), step)
                if value.numel() > 1:
                    self._writer.add_histogram(f"{name}/all", value.cpu().numpy().ravel(), step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _epochs(
    training: Training, source: VectorSource, split: Split, out: Path, quiet: bool, recorder: Recorder | None
) -> tuple[dict[str, Tensor], list[EpochResult]]:
    """Train what is left; returns the chosen weights and the result of every epoch."""
    recipe = training.recipe
    history: list[EpochResult] = []
    best: dict[str, Tensor] = {}
    stored = load_checkpoint(out / "checkpoint", training.modules, training.optimizers)
    if stored is not None:
        best, history = stored[0], stored[1]["history"]
    events = Events(out / "events", write=rank() == 0 and len(history) < recipe.epochs)
    if recorder is not None and not history:
        recorder.write(0)
    for number in range(len(history), recipe.epochs):
        began = time.perf_counter()
        result: EpochResult = {"epoch": number + 1, **training.epoch(number, events.scalars)}
        if rank() == 0:
            result |= _score_epoch(training, source, split, events, (number + 1) * training.steps)
            result["seconds"] = round(time.perf_counter() - began, 3)
            # Under `paper` the last epoch's weights are kept: the field chooses among figures, in the report.
            if split.protocol == "paper" or result["score"] > max((r["score"] for r in history), default=-1.0):
                best = copy_weights(training.network.modules())
            history.append(result)
            if recorder is not None:  # before the checkpoint, which then never is ahead of the record
                recorder.write(number + 1)
            save_checkpoint(out / "checkpoint", training.modules, training.optimizers, best, {"history": history})
            if not quiet:
                _print_epoch(result, history, recipe)
        wait_for_all()
    events.close()
    return best, history


def _score_epoch(training: Training, source: VectorSource, split: Split, events: Events, step: int) -> EpochResult:
    """mAP after an epoch: of the validation items (`honest`; see `Split.validation_database`), or the queries."""
    labels = source.dataset.labels

    def codes(rows: Rows) -> tuple[Any, Any]:
        outputs = head_outputs(training.network, source, rows)
        events.scalars(step, {"balance/image": balance(outputs.image), "balance/text": balance(outputs.text)})
        return pack(outputs.image), pack(outputs.text)

    if split.protocol == "honest":
        rows, queries = split.validation_database(), len(split.validation)
        image, text = codes(rows)
        i2t, t2i = (
            mean_ap(per_query_ap(query, database, labels[rows], labels[rows], exclude_self=True)[:queries])
            for query, database in ((image, text), (text, image))
        )
    else:
        (image, text), (image_db, text_db) = codes(split.query), codes(split.database)
        i2t = map_of(image, text_db, labels[split.query], labels[split.database])
        t2i = map_of(text, image_db, labels[split.query], labels[split.database])
    events.scalars(step, {"map/i2t": i2t, "map/t2i": t2i})
    events.measures(step, training.method.measures())
    return {"i2t": i2t, "t2i": t2i, "score": (i2t + t2i) / 2}


def _print_epoch(result: EpochResult, history: list[EpochResult], recipe: Recipe) -> None:
    left = sum(r["seconds"] for r in history) / len(history) * (recipe.epochs - result["epoch"])
    where = "validation" if recipe.protocol == "honest" else "query"
    print(
        f"epoch {result['epoch']:3}/{recipe.epochs}  loss {result['loss']:9.4f}  {where} mAP i→t {result['i2t']:.4f}"
        f"  t→i {result['t2i']:.4f}  {result['seconds']:6.1f} s  {left:6.0f} s left",
        file=sys.stderr,
    )


def _save(training: Training, best: dict[str, Tensor], history: list[EpochResult], out: Path) -> None:
    """The chosen weights become the model; its configuration is written last, so a run with one is finished."""
    if not best:
        raise DataError(f"{out}: the checkpoint holds no weights: remove {out / 'checkpoint'} to start again")
    recipe, network = training.recipe, training.network
    network.modules().load_state_dict(best)
    chosen = max(history, key=lambda r: r["score"]) if recipe.protocol == "honest" else history[-1]
    about = {
        "method": recipe.method,
        "data": training.source.dataset.name,
        "seed": recipe.seed,
        "protocol": recipe.protocol,
        "epoch": f"{chosen['epoch']} of {recipe.epochs}",
    }
    network.config = replace(network.config, about=about)
    write_json(out / "history.json", history)
    network.save(out / "model")


def balance(outputs: NDArray[np.float32]) -> float:
    """Mean over bits of |share of ones - 1/2| * 2: 0 where every bit is fair, 1 where every bit is constant."""
    return float(np.abs(2 * (outputs >= 0).mean(axis=0) - 1).mean())
