"""Train a run: from a recipe to a run folder, whole or resumable at any moment."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kenthash.data.dataset import Dataset
from kenthash.data.splits import Protocol, Rows, Split, make_split
from kenthash.encoders import check_device, load_encoder
from kenthash.encoders.pipeline import features_for
from kenthash.errors import DataError, KenthashError, UsageError, missing_extra
from kenthash.files import write_json
from kenthash.methods import METHODS
from kenthash.model.calibration import calibrate
from kenthash.model.hasher import Hasher
from kenthash.model.relevance import Relevance
from kenthash.training.checkpoint import copy_weights, load_checkpoint, save_checkpoint
from kenthash.training.distributed import own_device, process_group, rank, wait_for_all
from kenthash.training.epoch_scores import score_epoch
from kenthash.training.lacking import split_without
from kenthash.training.loop import Training
from kenthash.training.proxy_record import ProxyRecorder
from kenthash.training.recipe import Recipe, read_recipe, stored_recipe, write_recipe
from kenthash.training.run_folder import LOCK, open_source, write_lock
from kenthash.training.short_texts import no_short_texts
from kenthash.training.sources import FeatureSource, VectorSource
from kenthash.training.start import default_start
from kenthash.training.supervision import check_supervision, training_notes

CALIBRATED_ON = 2_000  # items at most
BINS = np.concatenate([-np.geomspace(1e20, 1e-12, 774), [0], np.geomspace(1e-12, 1e20, 774)])  # as TensorBoard's own

EpochResult = dict[str, Any]  # an entry of history.json: mean loss and terms, mAP, seconds


def train_run(
    recipe: Recipe,
    out: Path,
    resume: bool = False,
    device: torch.device | None = None,
    quiet: bool = False,
    record: bool = False,
    choose_start: bool = False,
) -> bool:
    """Train `recipe` into the run folder `out`. A finished run is left as it is; an unfinished one needs `resume`.

    With `record`, proxies and a sample of outputs are kept after every epoch (`training/proxy_record.py`). With
    `choose_start` it goes on from the pretrained model that fits, if there is one (`training/start.py`).
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
    device = own_device(device or torch.device(check_device("auto")))
    with process_group(device, out):
        if rank() == 0:
            _check_folder(recipe, out, resume)
        if _finished(out):
            return rank() == 0
        encoder = None
        if recipe.encoder.trainable:
            encoder = load_encoder(recipe.encoder.spec, device=str(device), trainable=True)
        source = open_source(recipe, device, encoder, lambda dataset, captions: _check_data(recipe, dataset, captions))
        split = _split(recipe, source.dataset)
        told = f"the heads go on from those of {recipe.start}" if recipe.start else ""
        if choose_start:
            start, told = default_start(recipe, source, split.train)
            recipe = replace(recipe, start=start)
        frozen = _frozen_vectors(recipe, source, device)
        # Before anything is written: there may be no memory.
        training = Training(recipe, source, split.train, device, frozen)
        with write_lock(out) if rank() == 0 else nullcontext():
            if rank() == 0:
                _check_folder(recipe, out, resume)  # again, since another process may have begun a run here meanwhile
                if not quiet:
                    _tell_start_and_what_is_not_used(told, training, source, split)
                write_recipe(out / "recipe.yaml", recipe)
                split.save(out / "split.npz")
            with _threads(None if encoder is not None else 1):
                recorder = ProxyRecorder(out, training, split) if record and rank() == 0 else None
                best, history = _epochs(training, split, out, quiet, recorder)
            if rank() == 0:
                _save(training, best, history, out)
            wait_for_all()
        return rank() == 0


def _tell_start_and_what_is_not_used(told: str, training: Training, source: VectorSource, split: Split) -> None:
    notes = training_notes(type(training.method), source.dataset.labels, source.captions, split.train)
    if told:
        notes.append(told)
    if training.method.uses_short_texts() and (reason := no_short_texts(source)):
        notes.append(f"short texts are not learned from: {reason}")
    for note in notes:
        print(f"{source.dataset.name}: {note}", file=sys.stderr)


def calibrate_run(out: Path) -> None:
    """Measure how often a hit of a finished run's model is right (`model/calibration.py`), where that is not known yet
    and can be, on database items that it was not trained on: those for validation, and others where they are few. One
    line on standard error says why, where it cannot be."""
    hasher = Hasher.load(out, "cpu")
    if hasher.relevance is not None:
        return
    try:
        _calibrate(hasher, out).write(hasher.folder)
    except (KenthashError, ModuleNotFoundError) as error:
        reason = missing_extra(error) or error if isinstance(error, ModuleNotFoundError) else error
        print(f"searches will have no relevance in per cent: {reason}", file=sys.stderr)


def _calibrate(hasher: Hasher, out: Path) -> Relevance:
    if hasher.config.encoder_trained:
        raise DataError(f"{out}: it is measured only with encoders that were not trained with the model")
    recipe, split = stored_recipe(out / "recipe.yaml"), Split.load(out / "split.npz")
    pack = features_for(Path(recipe.data), recipe.encoder.spec)
    if len(pack) != split.items:
        raise DataError(f"{recipe.data}: has {len(pack)} items now, and had {split.items} when {out} was trained on it")
    others = np.setdiff1d(split.database, np.concatenate([split.train, split.validation]))
    others = np.random.default_rng(split.seed).permutation(others)
    return calibrate(hasher, pack, np.concatenate([split.validation, others])[:CALIBRATED_ON], split.seed)


def _frozen_vectors(recipe: Recipe, source: VectorSource, device: torch.device) -> FeatureSource | None:
    """Of the epochs before an encoder learns; the same cached vectors that training without it takes."""
    if not recipe.encoder.trainable or not recipe.encoder.frozen_epochs:
        return None
    frozen = open_source(recipe, device)
    if len(frozen.dataset) < len(source.dataset):
        raise DataError(
            f"{recipe.data}: some items cannot be encoded: take them out (`kenthash data check` lists them)"
        )
    assert isinstance(frozen, FeatureSource)
    return frozen


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
        written, stored = read_recipe(out / "recipe.yaml"), stored_recipe(out / "recipe.yaml")
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
    split = make_split(len(dataset), recipe.seed, recipe.protocol, **asdict(recipe.split))
    return split_without(split, dataset, recipe.lacking)


def _check_data(recipe: Recipe, dataset: Dataset, captions: Rows) -> None:
    check_supervision(dataset.name, METHODS[recipe.method], dataset.labels, captions, _split(recipe, dataset))


class Events:
    """TensorBoard events: every loss term, the gradient's norm, what the method watches, the balance of bits.

    Written to `folder`; a process that is not the first of its group writes nothing. They are written by this thread:
    in TensorBoard's own writer a thread does it, which prints a trace where the disk is full.
    """

    def __init__(self, folder: Path, write: bool) -> None:
        self._writer: Any = None
        if write:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.summary.writer.record_writer import RecordWriter
            from torch.utils.tensorboard import summary

            self._event = Event
            self._summary: Any = summary  # which has no types
            folder.mkdir(exist_ok=True)
            name = f"events.out.tfevents.{time.time():.6f}.{os.getpid()}"
            self._writer = RecordWriter((folder / name).open("wb"))  # closed by `close`
            self._write(file_version="brain.Event:2")

    def _write(self, **fields: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), **fields).SerializeToString())

    def scalars(self, step: int, values: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._write(step=step, summary=self._summary.scalar(name, value))

    def measures(self, step: int, values: dict[str, Tensor]) -> None:
        """The mean, and the histogram of what has more than one value."""
        if self._writer is not None:
            for name, value in values.items():
                self._write(step=step, summary=self._summary.scalar(f"{name}/mean", value.mean().item()))
                if value.numel() > 1:
                    numbers = value.cpu().numpy().ravel()
                    self._write(step=step, summary=self._summary.histogram(f"{name}/all", numbers, BINS))

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _epochs(
    training: Training, split: Split, out: Path, quiet: bool, recorder: ProxyRecorder | None
) -> tuple[dict[str, Tensor], list[EpochResult]]:
    """Train what is left; returns the chosen weights and the result of every epoch."""
    recipe = training.recipe
    history: list[EpochResult] = []
    best: dict[str, Tensor] = {}
    stored = load_checkpoint(out / "checkpoint", training.modules, training.optimizers)
    if stored is not None:
        best, history = stored[0], stored[1]["history"]
    events = Events(out / "events", write=rank() == 0 and len(history) < training.epochs)
    if recorder is not None and not history:
        recorder.write(0)
    for number in range(len(history), training.epochs):
        began = time.perf_counter()
        result: EpochResult = {"epoch": number + 1, **training.epoch(number, events.scalars)}
        if rank() == 0:
            step = (number + 1) * training.steps
            source = training.source_of(number)
            result |= score_epoch(training.network, source, split, recipe.choose_by, partial(events.scalars, step))
            events.measures(step, training.method.measures())
            events.flush()
            result["seconds"] = round(time.perf_counter() - began, 3)
            # Under `paper` the last epoch's weights are kept: the field chooses among figures, in the report.
            if split.protocol == "paper" or result["score"] > max((r["score"] for r in history), default=-1.0):
                best = copy_weights(training.network.modules())
            history.append(result)
            if recorder is not None:  # before the checkpoint, which then never is ahead of the record
                recorder.write(number + 1)
            save_checkpoint(out / "checkpoint", training.modules, training.optimizers, best, {"history": history})
            if not quiet:
                _print_epoch(result, history, recipe.protocol, training.epochs)
        wait_for_all()
    events.close()
    return best, history


def _print_epoch(result: EpochResult, history: list[EpochResult], protocol: Protocol, epochs: int) -> None:
    left = sum(r["seconds"] for r in history) / len(history) * (epochs - result["epoch"])
    where = "validation" if protocol == "honest" else "query"
    loss = f"loss {result['loss']:9.4f}" if "loss" in result else "fitted"
    measures = [("mAP", ""), ("own R@10", "recall_")] if "i2t" in result else [("own R@10", "recall_")]
    figures = "  ".join(
        f"{name} i→t {result[prefix + 'i2t']:.4f} t→i {result[prefix + 't2i']:.4f}" for name, prefix in measures
    )
    print(
        f"epoch {result['epoch']:3}/{epochs}  {loss}  {where} {figures}"
        f"  {result['seconds']:6.1f} s  {left:6.0f} s left",
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
        "epoch": f"{chosen['epoch']} of {training.epochs}",
    }
    network.config = replace(network.config, about=about)
    write_json(out / "history.json", history)
    network.save(out / "model")
