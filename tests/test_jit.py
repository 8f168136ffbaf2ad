"""Compiled kernels where compiled code cannot be kept."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kenthash

SCRIPT = """
import torch
import kenthash.evaluation, kenthash.search, kenthash.methods
from kenthash.proxies.frames import inverse

assert kenthash.__file__.startswith(PLACE), kenthash.__file__
assert torch.equal(inverse(2 * torch.eye(3)[None]), torch.eye(3)[None] / 2)
"""


def test_kernels_compile_where_nothing_can_be_written(tmp_path: Path) -> None:
    """numba keeps compiled code beside the source or in the user's cache. A file in the place of either folder stops
    it, also where the tests run as root, who may write into read-only folders."""
    package = Path(kenthash.__file__).parent
    copy = shutil.copytree(package, tmp_path / "kenthash", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    (tmp_path / "home").touch()
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {name: str(tmp_path / "home") for name in ("HOME", "XDG_CACHE_HOME")}
    environment |= {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    script = SCRIPT.replace("PLACE", repr(str(tmp_path)))
    completed = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr[-2000:]
