"""Optional components: a missing one skips a test on a developer's machine and fails it in CI, which installs all."""

import importlib
import os
from collections.abc import Callable
from types import ModuleType

import pytest


def need(module: str) -> ModuleType:
    """Import an optional component, or skip (fail where CI is set, which installs all of them)."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if os.environ.get("CI"):
            pytest.fail(f"{module} is missing and CI must have it: {error}")
        pytest.skip(f"{module} is not installed")


def need_shim(compiled: Callable[[], object]) -> None:
    """Compile the shim of tests/torture, or skip where there is no C compiler (fail where CI is set)."""
    try:
        compiled()
    except OSError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have a C compiler: {error}")
        pytest.skip(str(error))
