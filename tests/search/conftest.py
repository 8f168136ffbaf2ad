"""Where indexes are created: a folder, a real Milvus, a real PostgreSQL."""

from collections.abc import Callable

import pytest
from servers import new_addresses

from kenthash.search.local import scan


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small indexes would all be searched by numpy. Tests of that set this themselves."""
    monkeypatch.setattr(scan, "_words_left", -1)


@pytest.fixture(scope="session", params=["local", "milvus", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The address of an index, given its name."""
    if request.param == "local":
        folder = tmp_path_factory.mktemp("indexes")
        return lambda name: str(folder / f"{name}.kh")
    return new_addresses(request.param)
