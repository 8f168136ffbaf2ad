"""A small index of scenes, the real service on it (with and without a key), and a real browser to look at it with."""

import json
import os
import select
import shutil
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
import pytest
import torch

from components import need
from kenthash import Hasher, Index
from kenthash.codes import Codes
from kenthash.data.scenes import make_scenes
from kenthash.encoders import load_encoder
from kenthash.model.hasher import HasherConfig
from kenthash.model.heads import HeadConfig
from kenthash.search.folder import sync_folder
from kenthash.search.models import claim

ITEMS = 52
HOSTILE = "<img src=x onerror=document.title='owned'> & <b>bold</b>"  # a caption, which must stay what it is
QUOTED = "o'clock <i>"  # and a label
KEY = "correct-horse-battery-staple"
START_SECONDS = 120
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Chromium says this of every answer of status 400 and up, which some tests want.
EXPECTED = "Failed to load resource: the server responded with a status of "


@dataclass(frozen=True)
class Collection:
    """What the service serves, for a test to work out by itself what the page must show."""

    index: Path
    pictures: Path
    hasher: Hasher
    ids: list[str] = field(repr=False)
    codes: Codes = field(repr=False)
    metadata: list[dict[str, Any]] = field(repr=False)

    def nearest(self, code: np.ndarray, where: Callable[[dict[str, Any]], bool] = lambda _: True) -> list[tuple]:
        """(distance, id) of all items, nearest first: XOR, count, sort."""
        distances = np.unpackbits(self.codes ^ code, axis=1).sum(axis=1).tolist()
        rows = zip(distances, self.ids, self.metadata, strict=True)
        return sorted((distance, name) for distance, name, entry in rows if where(entry))


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """Scenes under random linear heads: bits that say little, but every path to them is the real one."""
    folder = tmp_path_factory.mktemp("browser")
    make_scenes(folder / "scenes", ITEMS, seed=5)
    rows = [json.loads(line) for line in (folder / "scenes" / "metadata.jsonl").read_text().splitlines()]
    rows[0]["texts"][0] = HOSTILE
    for row in rows[:3]:
        row["labels"].append(QUOTED)
    (folder / "scenes" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    torch.manual_seed(0)
    encoder, head = load_encoder("light"), HeadConfig()
    config = HasherConfig(64, encoder.image_dim, encoder.text_dim, head, head, "light")
    hasher = Hasher(config, encoder)
    hasher.save(folder / "model")
    with Index.create(folder / "scenes.kh", 64) as index:
        claim(index, folder / "model")
        sync_folder(index, folder / "scenes", hasher.encode_pictures)
        items = index.get(index.list_ids())
    codes = np.stack([item.code for item in items])
    metadata = [item.metadata for item in items]
    return Collection(folder / "scenes.kh", folder / "scenes", hasher, [item.id for item in items], codes, metadata)


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """The address of a service that the command line starts, and that ends well when told to."""
    # Told to end by the kernel too, should this process be killed.
    command = ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "kenthash", "serve", "--port", "0", "--json"]
    server = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert server.stdout and server.stderr
    try:
        answered, _, _ = select.select([server.stdout], [], [], START_SECONDS)
        line = server.stdout.readline() if answered else b""
        assert line, f"the service did not start: {os.read(server.stderr.fileno(), 4096).decode()}"
        threading.Thread(target=server.stderr.read, daemon=True).start()  # its log must not fill the pipe
        yield f"{json.loads(line)['url']}/"
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def url(collection: Collection) -> Iterator[str]:
    with serving("--index", str(collection.index)) as address:
        yield address


@pytest.fixture(scope="session")
def locked_url(collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("locked")
    key = folder / "key.txt"
    key.write_text(f"{KEY}\n")
    for part in collection.index.parent.glob("scenes.kh*"):  # an index of its own: a service writes beside it
        shutil.copy(part, folder)
    with serving("--index", str(folder / "scenes.kh"), "--api-key-file", str(key)) as address:
        yield address


@pytest.fixture(scope="module")  # not longer: while it is open, no other test in this process could run an event loop
def browser() -> Iterator[Any]:
    playwright = need("playwright.sync_api")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        problem = f"no browser: install one of {', '.join(BROWSERS)}"
        if os.environ.get("CI"):
            pytest.fail(problem)
        pytest.skip(problem)
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=program)
        yield chromium
        chromium.close()


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages, each with a profile of its own. Whatever they complain about in the console fails the test: that is
    where a script's error and a breach of the content security policy show."""
    contexts, complaints = [], []

    def complain(message: Any) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(EXPECTED):
            complaints.append(message.text)

    def make(width: int = 1280, height: int = 800, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield make
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture
def page(new_page: Callable[..., Any]) -> Any:
    return new_page()
