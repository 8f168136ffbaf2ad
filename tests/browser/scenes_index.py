"""A small index of scenes with the model of its codes, from which a test works out what the page must show; and the
service on it."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kenthash import Hasher, Index
from kenthash.codes import Codes
from kenthash.data.scenes import make_scenes
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork
from kenthash.search import add_texts
from kenthash.search.folders.folder import sync_folder
from kenthash.search.folders.walk import walk_folder
from kenthash.search.models import assign_model
from kenthash.search.queries import Queries, real_valued
from processes import PATIENCE

ITEMS = 52
FROM_CAMERAS = 40  # of which it is known when, where and with which camera they were taken
CAMERAS = ("X100V", "it's one")
PLACES = ({"latitude": 48.21, "longitude": 16.37}, {"latitude": -33.87, "longitude": 151.21})
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

    def nearest(
        self, query: NDArray[Any], where: Callable[[dict[str, Any]], bool] = lambda _: True
    ) -> list[tuple[int, str]]:
        """(bits that differ, id) of all items, nearest first: XOR, count or weigh, sort. The query is a code, or
        real-valued outputs."""
        queries = real_valued(query[None]) if query.dtype.kind == "f" else Queries(query[None])
        distances = queries.distances(0, self.codes).tolist()
        bits = np.unpackbits(self.codes ^ queries.codes, axis=1).sum(axis=1).tolist()
        rows = zip(distances, self.ids, bits, self.metadata, strict=True)
        return [
            (differing, name) for _, name, differing, entry in sorted(rows, key=lambda row: row[:2]) if where(entry)
        ]


def make_collection(folder: Path) -> Collection:
    """Scenes under random linear heads: bits that say little, but every path to them is the real one."""
    make_scenes(folder / "scenes", ITEMS, seed=5)
    rows = [json.loads(line) for line in (folder / "scenes" / "metadata.jsonl").read_text().splitlines()]
    rows[0]["texts"][0] = HOSTILE
    for row in rows[:3]:
        row["labels"].append(QUOTED)
    for i, row in enumerate(rows[:FROM_CAMERAS]):
        place = PLACES[i % len(PLACES)]
        row |= {"taken": f"20{19 + i % 4}-0{1 + i % 5}-10 12:00:00", "camera": CAMERAS[i % 2], **place}
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


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """The address of a service that the command line starts, and that ends well when told to."""
    # Told to end by the kernel too, should this process be killed.
    command = ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "kenthash", "serve", "--port", "0", "--json"]
    command += ["--timeout", str(PATIENCE)]
    server = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert server.stdout and server.stderr
    try:
        answered, _, _ = select.select([server.stdout], [], [], PATIENCE)
        line = server.stdout.readline() if answered else b""
        assert line, f"the service did not start: {os.read(server.stderr.fileno(), 4096).decode()}"
        threading.Thread(target=server.stderr.read, daemon=True).start()  # its log must not fill the pipe
        yield f"{json.loads(line)['url']}/"
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=PATIENCE) == 0
    finally:
        server.kill()
        server.wait()
