"""The optional record of a run: where its proxies and some of its samples were after every epoch, for `analysis`.

RUN/proxies/rows.npz             the recorded items: `train` and `validation`, rows of the data set
RUN/proxies/epoch-NNN.npz        epoch 0 is before training:
    means [C, K]                     directions of the classes
    frames [C, K, 1+A], kappa [C], beta [C, A]     where the proxies have them
    image, text [n, K] float16       outputs of the recorded items, train before validation
    nearest_image, nearest_text [n]  the class of each one's highest score, under the method's own score

Nothing random is drawn, so a recorded run gives the same model as one that is not.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from kenthash.data.splits import Split
from kenthash.errors import DataError, UsageError
from kenthash.files import atomic_write, load_npz
from kenthash.proxies import KentProxies, VmfProxies
from kenthash.training.loop import Training
from kenthash.training.sources import head_outputs

FOLDER = "proxies"
TRAIN_ITEMS, VALIDATION_ITEMS = 2_000, 1_000  # at most; 64 bits and 20 epochs make 16 MB of them


class ProxyRecorder:
    """Writes the record of one training, an epoch at a time."""

    def __init__(self, run: Path, training: Training, split: Split) -> None:
        proxies = training.method.class_proxies()
        if proxies is None:
            raise UsageError(f"{training.method.key} has no proxies: there is nothing to record of it")
        self.folder, self.training, self.proxies = run / FOLDER, training, proxies
        # Train and validation are in random order already: their first items with a caption are a fixed random sample.
        captioned = training.source.captions > 0
        self.train = split.train[captioned[split.train]][:TRAIN_ITEMS]
        self.validation = split.validation[captioned[split.validation]][:VALIDATION_ITEMS]
        self.rows = np.concatenate([self.train, self.validation])

    def write(self, epoch: int) -> None:
        """Record the state after `epoch` epochs. The first, before training, also says which items are recorded."""
        if epoch == 0:
            _write(self.folder / "rows.npz", {"train": self.train, "validation": self.validation})
        outputs = head_outputs(self.training.network, self.training.source, self.rows)
        values: dict[str, Any] = {}
        with torch.inference_mode():
            for side, h in (("image", outputs.image), ("text", outputs.text)):
                z = normalize(torch.from_numpy(h).to(self.training.device))
                values[side] = h.astype(np.float16)
                values[f"nearest_{side}"] = self.proxies.scores(z).argmax(dim=1).to(torch.int32).cpu().numpy()
            values["means"] = self.proxies.mean_directions().float().cpu().numpy()
            if isinstance(self.proxies, KentProxies | VmfProxies):
                values["kappa"] = self.proxies.concentration().float().cpu().numpy()
            if isinstance(self.proxies, KentProxies):
                values["frames"] = self.proxies.frames().to(torch.float16).cpu().numpy()
                values["beta"] = self.proxies.shape().float().cpu().numpy()
        _write(self.folder / f"epoch-{epoch:03}.npz", values)


@dataclass(frozen=True)
class Epoch:
    means: NDArray[np.float32]  # [C, K]
    image: NDArray[np.float16]  # [n, K]
    text: NDArray[np.float16]
    nearest_image: NDArray[np.int32]  # [n]
    nearest_text: NDArray[np.int32]
    frames: NDArray[np.float16] | None = None  # [C, K, 1+A]
    kappa: NDArray[np.float32] | None = None  # [C]
    beta: NDArray[np.float32] | None = None  # [C, A]


@dataclass(frozen=True)
class ProxyRecord:
    train: NDArray[np.int64]  # rows of the data set, the first of the recorded items
    validation: NDArray[np.int64]  # the others
    epochs: list[Epoch]  # the first is before training

    @property
    def paths(self) -> NDArray[np.float32]:
        """[C, T+1, K]: every class's positions through training."""
        return np.stack([epoch.means for epoch in self.epochs], axis=1)


def has_record(run: Path) -> bool:
    return (run / FOLDER / "rows.npz").is_file()


def read_record(run: Path, epochs: int) -> ProxyRecord:
    """The record of a run of so many epochs."""
    if not has_record(run):
        raise DataError(f"{run}: was not recorded: remove it and let `kenthash reproduce` make it again")
    rows = _read(run / FOLDER / "rows.npz")
    parts = [Epoch(**_read(run / FOLDER / f"epoch-{epoch:03}.npz")) for epoch in range(epochs + 1)]
    return ProxyRecord(rows["train"], rows["validation"], parts)


def _write(path: Path, values: dict[str, Any]) -> None:
    with atomic_write(path) as stream:
        np.savez(stream, **values)


def _read(path: Path) -> dict[str, Any]:
    try:
        return load_npz(path)
    except ValueError as error:
        raise DataError(f"{path}: not a part of a record: {error}; remove the run and make it again") from error
