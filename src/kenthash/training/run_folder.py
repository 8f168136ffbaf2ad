"""A run folder: what training wrote, for everything that reads it.

`recipe.yaml` (as resolved), `split.npz`, `model/` (config.json, model.safetensors, card), `checkpoint/` (to resume),
`history.json` (the result of every epoch), `metrics.json`, `per_query_ap.npz`, `events/` for TensorBoard, `figures/`,
and `proxies/` where the run was recorded (`proxy_record.py`); `lock` is empty.
"""

import fcntl
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from kenthash.data.dataset import Dataset
from kenthash.data.pack import is_pack
from kenthash.data.readers import read_dataset
from kenthash.data.splits import Rows, Split
from kenthash.encoders.base import Encoder
from kenthash.encoders.pipeline import features_for
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.model.network import HashNetwork
from kenthash.training.recipe import Recipe, stored_recipe
from kenthash.training.sources import FeatureSource, Outputs, PictureSource, VectorSource, head_outputs

LOCK = "lock"

log = logging.getLogger(__name__)


@contextmanager
def write_lock(path: Path) -> Iterator[None]:
    """Let one process at a time write into a run folder, and refuse the next."""
    path.mkdir(parents=True, exist_ok=True)
    with (path / LOCK).open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise KenthashError(f"{path}: another process is writing this run: let it end, or stop it first") from error
        except OSError as error:  # some network file systems have no locks
            log.info("%s: cannot be locked: %s", path, error)
        yield


def open_source(
    recipe: Recipe,
    device: torch.device,
    encoder: Encoder | None = None,
    check: Callable[[Dataset, Rows], None] = lambda dataset, captions: None,
) -> VectorSource:
    """The recipe's data: through `encoder` where one is being or was trained, else as cached vectors.

    `check` sees the items and the number of captions of each before they are encoded, which may take hours, and again
    if some of them could not be.
    """
    if not recipe.data:  # an empty path would be the folder one happens to stand in
        raise UsageError("no data is named: say where it is with --data, or resume a run that says so")
    path = Path(recipe.data)
    if not path.exists():
        raise DataError(f"{path}: there is no such data set: check the path, or say where it is with --data")
    if is_pack(path) and encoder is None:
        pack = features_for(path)
        check(pack.dataset, np.diff(pack.text_offsets))
        return FeatureSource(pack, device, recipe.encoder.named)
    dataset = read_dataset(path)
    check(dataset, np.array([len(texts) for texts in dataset.captions()]))
    if encoder is not None:
        return PictureSource(dataset, encoder, device, chunk=recipe.encoder.chunk)
    pack = features_for(dataset, recipe.encoder.spec, device=str(device))
    if len(pack) < len(dataset):
        check(pack.dataset, np.diff(pack.text_offsets))
    return FeatureSource(pack, device)


@dataclass(frozen=True)
class Run:
    path: Path
    recipe: Recipe
    split: Split
    network: HashNetwork

    @classmethod
    def open(cls, path: Path, device: str = "auto") -> "Run":
        """Open a finished run, its model on a device (see `Hasher.load`)."""
        if not (path / "recipe.yaml").is_file():
            raise DataError(f"{path}: no recipe.yaml here, so this is not a run: `kenthash train` makes one")
        if not (path / "model" / "config.json").is_file():
            raise DataError(f"{path}: training has not finished: go on with `kenthash train --resume --out {path}`")
        recipe = stored_recipe(path / "recipe.yaml")
        return cls(path, recipe, Split.load(path / "split.npz"), HashNetwork.load(path, device))

    def source(self) -> VectorSource:
        """The run's data, on the device of its model."""
        encoder = self.network.encoder if self.network.config.encoder_trained else None
        source = open_source(self.recipe, self.network.device, encoder)
        if self.split.items != len(source.dataset):
            now, then = len(source.dataset), self.split.items
            raise DataError(
                f"{self.recipe.data}: has {now} items now, and had {then} when {self.path} was trained on it"
            )
        if len({source.encoder_weights, self.network.config.encoder_weights} - {""}) > 1:
            raise DataError(
                f"{self.recipe.data}: its vectors are by other weights of the encoder than the model of {self.path} "
                "was trained with: encode the data as it was for training"
            )
        for tower in ("image", "text"):
            data_dim, model_dim = getattr(source, f"{tower}_dim"), getattr(self.network.config, f"{tower}_dim")
            if data_dim != model_dim:
                raise DataError(
                    f"{self.recipe.data}: its {tower} vectors have {data_dim} dimensions, but the model of {self.path} "
                    f"takes {model_dim}: encode the data as it was for training"
                )
        return source

    def outputs(self, source: VectorSource, rows: Rows) -> Outputs:
        return head_outputs(self.network, source, rows)
