"""A small index of painted pictures with captions, a model that has learnt nothing, and the real server on them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import httpx
import numpy as np
import torch
from PIL import Image

from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.hasher import Hasher
from kenthash.model.network import HashNetwork
from kenthash.search import Index, add_texts
from kenthash.search.folders.folder import sync_folder
from kenthash.search.folders.walk import walk_folder
from kenthash.search.models import assign_model
from processes import PATIENCE
from processes import wait_until as wait_until

ITEMS, BITS = 12, 64
LABELS = ("dog", "cat", "it's")


@dataclass(frozen=True)
class Place:
    folder: Path

    @property
    def index(self) -> Path:
        return self.folder / "photos.kh"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def photos(self) -> Path:
        return self.folder / "photos"


def jpeg(seed: int, size: tuple[int, int] = (40, 20), orientation: int = 1) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    stream, exif = BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).resize(size).save(stream, "JPEG", exif=exif)
    return stream.getvalue()


def make_model(folder: Path, seed: int = 0) -> Hasher:
    torch.manual_seed(seed)
    head = HeadConfig()
    network = HashNetwork(HasherConfig(BITS, 1280, 384, head, head, "light"))
    network.save(folder)
    return Hasher.load(folder)


def make_place(folder: Path) -> Place:
    place = Place(folder)
    (place.photos / "2024").mkdir(parents=True)
    rows = []
    for i in range(ITEMS):
        (place.photos / "2024" / f"{i}.jpg").write_bytes(jpeg(i))
        rows.append({"file_name": f"2024/{i}.jpg", "text": f"picture number {i}", "labels": [LABELS[i % 3]], "year": i})
    (place.photos / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    hasher = make_model(place.model)
    with Index.create(place.index, BITS) as index:
        assign_model(index, place.model)
        sync_folder(index, walk_folder(place.photos), hasher.encode_files)
        add_texts(index, hasher.encode_texts)
    return place


def name(number: int) -> str:
    return f"photos/2024/{number}.jpg"


@dataclass(frozen=True)
class Running:
    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def running(
    place: Place,
    *options: str,
    index: str = "",
    items: int = ITEMS,
    unread_log: bool = False,
    before: Sequence[str] = (),
) -> Iterator[Running]:
    """The command as a user would start it, on the place's index or another one; `before` is a command that runs it."""
    target = index or str(place.index)
    command = [*before, sys.executable, "-m", "kenthash", "serve", "--index", target, "--port", "0", "--json"]
    command += ["--timeout", str(PATIENCE)]  # unless the options say otherwise
    log = place.folder / f"log {len(list(place.folder.glob('log *')))}"
    with log.open("w") as stream:
        stderr = subprocess.PIPE if unread_log else stream
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        started = json.loads(line)
        assert started["items"] == items
        yield Running(started["url"], process, log)
    finally:
        process.kill()
        process.wait()


def problem(answer: httpx.Response, status: int, slug: str) -> str:
    """Check that an answer is a typed error; its detail."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["type"] == f"/errors/{slug}" and document["status"] == status and set(document) == {
        "type", "title", "status", "detail",
    }  # fmt: skip
    assert document["detail"] and "\n" not in document["detail"]
    return str(document["detail"])


def resident(pid: int) -> int:
    """Most memory that a process has held, in bytes."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024


assert os.environ["OMP_NUM_THREADS"]  # set in tests/conftest.py, for the server as well
