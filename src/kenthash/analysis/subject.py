"""A finished run as an analysis needs it: its codes, its proxies after the last epoch, its record."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from kenthash.codes import Codes, pack
from kenthash.data.splits import Rows
from kenthash.errors import DataError
from kenthash.evaluation import Labels, Scores
from kenthash.methods import METHODS
from kenthash.proxies import ClassProxies
from kenthash.training.checkpoint import load_checkpoint
from kenthash.training.loop import Training
from kenthash.training.proxy_record import ProxyRecord, read_record
from kenthash.training.run_folder import Run
from kenthash.training.sources import Outputs, VectorSource, head_outputs
from kenthash.training.supervision import measured


class Subject:
    """Measures of codes are of the run's model, which is of the chosen epoch. Measures of proxies are of the last
    epoch, heads and proxies alike, as the model keeps no proxies and the checkpoint keeps only the last."""

    def __init__(self, run: Run, source: VectorSource) -> None:
        self.run, self.source = run, source
        self.title = METHODS[run.recipe.method].title
        self.labels: NDArray[np.uint8] = source.dataset.labels

    @cached_property
    def codes(self) -> dict[str, tuple[Codes, Codes]]:
        """(image, text) codes of "query" and "database"."""
        outputs = {part: self.run.outputs(self.source, rows) for part, rows in self.rows.items()}
        return {part: (pack(o.image), pack(o.text)) for part, o in outputs.items()}

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """The items of "query" and "database" that figures are of, as in `evaluate`."""
        query, database = measured(self.labels, self.source.captions, self.run.split)
        return {"query": query, "database": database}

    def directions(self) -> list[tuple[Codes, Codes, Labels, Labels]]:
        """(query codes, database codes, query labels, database labels): image → text, then text → image."""
        (image, text), (image_db, text_db) = self.codes["query"], self.codes["database"]
        labels = self.labels[self.rows["query"]], self.labels[self.rows["database"]]
        return [(image, text_db, *labels), (text, image_db, *labels)]

    @cached_property
    def last(self) -> Training:
        """Heads and method as they were after the last epoch."""
        training = Training(self.run.recipe, self.source, self.run.split.train, self.run.network.device)
        if load_checkpoint(self.run.path / "checkpoint", training.modules, training.optimizers) is None:
            raise DataError(f"{self.run.path}: its checkpoint is gone, and with it the proxies: train the run again")
        return training

    @property
    def proxies(self) -> ClassProxies | None:
        return self.last.method.class_proxies()

    @cached_property
    def means(self) -> NDArray[np.float32]:
        """Directions of the classes [C, K] after the last epoch."""
        with torch.inference_mode():
            return self._proxies().mean_directions().cpu().numpy()

    def last_outputs(self, rows: Rows) -> Outputs:
        return head_outputs(self.last.network, self.source, rows)

    @cached_property
    def unseen(self) -> Rows:
        """Every item with a caption that was not trained on."""
        return np.setdiff1d(np.flatnonzero(self.source.captions), self.run.split.train)

    def scores(self, rows: Rows) -> tuple[Scores, Scores, Labels]:
        """(cosines to the class directions, the method's own scores, labels), images of `rows` above their texts."""
        outputs = self.last_outputs(rows)
        with torch.inference_mode():
            z = normalize(torch.from_numpy(np.concatenate([outputs.image, outputs.text])))
            own = self._proxies().scores(z.to(self.run.network.device)).cpu().numpy()
        return z.numpy() @ self.means.T, own, np.tile(self.labels[rows], (2, 1))

    @cached_property
    def record(self) -> ProxyRecord:
        return read_record(self.run.path, self.run.recipe.epochs)

    def _proxies(self) -> ClassProxies:
        if self.proxies is None:
            raise DataError(f"{self.run.path}: {self.title} has no proxies: only its codes can be analysed")
        return self.proxies


def mean_over_seeds(parts: Sequence[Scores | float]) -> Scores:
    """The mean of one value, or one array of values, per seed; a seed's NaN is left out, and NaN remains where every
    seed has it."""
    stacked = np.stack([np.asarray(part, np.float64) for part in parts])
    known = ~np.isnan(stacked)
    total = np.where(known, stacked, 0.0).sum(axis=0)
    return np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)
