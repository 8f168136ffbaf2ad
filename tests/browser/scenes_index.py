"""A small index of scenes with the model of its codes, as what the page must show is worked out from."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kenthash import Hasher, Index
from kenthash.codes import Codes
from kenthash.data.scenes import make_scenes
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork
from kenthash.search import add_texts
from kenthash.search.folder import sync_folder, walk_folder
from kenthash.search.models import assign_model

ITEMS = 52
HOSTILE = "<img src=x onerror=document.title='owned'> & <b>bold</b>"  # a caption, which must stay what it is
QUOTED = "o'clock <i>"  # and a label


@dataclass(frozen=True)
class Collection:
    """What the service serves, for a test to work out by itself what the page must show."""

    index: Path
    pictures: Path
    hasher: Hasher
    ids: list[str] = field(repr=False)
    codes: Codes = field(repr=False)
    metadata: list[dict[str, Any]] = field(repr=False)

    def nearest(self, code: Codes, where: Callable[[dict[str, Any]], bool] = lambda _: True) -> list[tuple[int, str]]:
        """(distance, id) of all items, nearest first: XOR, count, sort."""
        distances = np.unpackbits(self.codes ^ code, axis=1).sum(axis=1).tolist()
        rows = zip(distances, self.ids, self.metadata, strict=True)
        return sorted((distance, name) for distance, name, entry in rows if where(entry))


def make_collection(folder: Path) -> Collection:
    """Scenes under random linear heads: bits that say little, but every path to them is the real one."""
    make_scenes(folder / "scenes", ITEMS, seed=5)
    rows = [json.loads(line) for line in (folder / "scenes" / "metadata.jsonl").read_text().splitlines()]
    rows[0]["texts"][0] = HOSTILE
    for row in rows[:3]:
        row["labels"].append(QUOTED)
    (folder / "scenes" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    torch.manual_seed(0)
    head = HeadConfig()
    HashNetwork(HasherConfig(64, 1280, 384, head, head, "light")).save(folder / "model")
    hasher = Hasher.load(folder / "model")
    with Index.create(folder / "scenes.kh", 64) as index:
        assign_model(index, folder / "model")
        sync_folder(index, walk_folder(folder / "scenes"), hasher.encode_files)
        add_texts(index, hasher.encode_texts)
        items = [item for item in index.get(index.list_ids()) if item]
    codes = np.stack([item.code for item in items])
    metadata = [item.metadata for item in items]
    return Collection(folder / "scenes.kh", folder / "scenes", hasher, [item.id for item in items], codes, metadata)
