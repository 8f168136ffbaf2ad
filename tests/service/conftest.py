import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from small_service import Place, Running, make_place, running

from processes import PATIENCE

sys.path.append(str(Path(__file__).parents[1] / "search"))  # for `servers`, which starts real ones


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="session")
def server(place: Place) -> Iterator[Running]:
    with running(place, "--writable", "--max-upload", "2") as started:
        yield started


@pytest.fixture(scope="session")
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        yield client
