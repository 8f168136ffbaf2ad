"""Shared by all tests. The modules beside this file (packs, components, processes) can be imported from every test.

Four test processes share two cores, since a test often waits for a server. The tensors here are small: one
thread each, or they wait for each other. Set before torch is imported, and inherited by the commands that tests start.

No test may fail because the machine is slow or busy, so Hypothesis does not limit the time of an example either.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Make the pipe on which servers hang that all processes of a run share (see `shared` in tests/search/servers.py):
    the first process keeps it open, so that they end with it, however it ends."""
    if "PYTEST_XDIST_WORKER" not in os.environ and hasattr(os, "mkfifo"):
        folder = tempfile.mkdtemp(prefix="kenthash-servers-")
        os.mkfifo(f"{folder}/end")
        pipe = os.open(f"{folder}/end", os.O_RDWR)
        os.environ["KENTHASH_SHARED_SERVERS"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder))
        config.add_cleanup(lambda: os.close(pipe))


# Files that take longest, which are begun first: else one process works on the last of them while the others wait.
LONGEST = (
    "studies/test_reproduce.py",
    "training/test_run.py",
    "encoders/test_shard_work.py",  # Ray, which else runs alone at the end
    "studies/test_practice.py",
    "studies/test_compare.py",
    "test_docs.py",
    "torture/test_faults.py",
    "torture/test_power_loss.py",
    "search/test_rule_machine.py",  # the first to wait for the start of Milvus, while the others do something else
    "encoders/test_encode_pipeline.py",
    "methods/test_learning.py",
    "encoders/test_devices.py",
    "search/test_bench_search.py",
    "browser/test_page_photos.py",
    "encoders/test_end_to_end.py",
    "search/test_damaged_codes.py",
    "search/test_damaged_store.py",
    "integrations/test_mteb.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A cache of this session, shared by its processes: an encoder is exported to ONNX once, and not to the user's."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    os.environ["XDG_CACHE_HOME"] = str(base / "user-cache")
