"""A small index of scenes, the real service on it (with and without a key), and a real browser to look at it with."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from on_page import KEY
from scenes_index import Collection, make_collection, serving

from components import need

PAGE_SECONDS = 120  # after which a wait for the page has failed; it takes seconds, also on a busy machine
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Chromium says this of every answer of status 400 and up, which some tests want.
EXPECTED = "Failed to load resource: the server responded with a status of "


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_collection(tmp_path_factory.mktemp("browser"))


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
    shutil.copytree(collection.pictures, folder / collection.pictures.name)  # which it looks for beside its file
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
        context.set_default_timeout(1000 * PAGE_SECONDS)
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
