"""Shared by all tests. The modules beside this file (packs, components, processes) can be imported from every test.

Two test processes share two cores, and the tensors here are small: one thread each, or they spend their time waiting
for each other. Set before torch is imported, and inherited by the commands that tests start.

No test may fail because the machine is slow or busy, so Hypothesis does not limit the time of an example either.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A cache of this session, shared by its processes: an encoder is exported to ONNX once, and not to the user's."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    os.environ["XDG_CACHE_HOME"] = str(base / "user-cache")
