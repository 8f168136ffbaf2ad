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
from typing import Any

import pytest
from on_page import KEY
from scenes_index import Collection, make_collection

from components import need
from processes import PATIENCE

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Chromium says this of every answer of status 400 and up, which some tests want.
EXPECTED = "Failed to load resource: the server responded with a status of "


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_collection(tmp_path_factory.mktemp("browser"))


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
        context.set_default_timeout(1000 * PATIENCE)
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
