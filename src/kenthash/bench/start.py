"""What starting costs: one search from the shell in a fresh process, the import, and the size of an installation."""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import numpy as np

from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.search import Index
from kenthash.search.models import assign_model

BITS = 64
ITEMS = 20_000
WORDS = "two dogs chasing a kite on the beach"
DIMENSIONS = (1280, 384)  # of the light encoder's vectors


def bench_start(index: str | None = None, rounds: int = 5) -> dict[str, float]:
    """Seconds and megabytes, each the least of some rounds. Without an index, one of random codes is made."""
    with tempfile.TemporaryDirectory() as folder:
        index = index or _index(Path(folder))
        search = ["-m", "kenthash", "search", WORDS, "--index", index, "--json"]
        _run(search)  # which may have an encoder to export
        first = min(_run(search, NUMBA_CACHE_DIR=tempfile.mkdtemp(dir=folder))[1] for _ in range(rounds))
        cold = [_run(search) for _ in range(rounds)]
        imports = [_run(["-c", "import kenthash"]) for _ in range(rounds)]
        bare = [_run(["-c", ""]) for _ in range(rounds)]
    return {
        "cold search, processor s": min(cpu for cpu, _ in cold),
        "cold search, wall s": min(wall for _, wall in cold),
        "first search, nothing compiled yet, wall s": first,
        "import kenthash, processor s": min(cpu for cpu, _ in imports) - min(cpu for cpu, _ in bare),
        "plain install, MB": plain_install_bytes() / 1e6,
    }


def _index(folder: Path) -> str:
    """Heads that have learnt nothing, and random codes, take as long as any."""
    from kenthash.model.network import HashNetwork

    head = HeadConfig("mlp", hidden=512)
    HashNetwork(HasherConfig(BITS, *DIMENSIONS, head, head, "light")).save(folder / "model")
    codes = np.random.default_rng(0).integers(0, 256, (ITEMS, BITS // 8), np.uint8)
    path = folder / "bench.kh"
    with Index.create(path, BITS) as index:
        assign_model(index, folder / "model")
        index.add([f"item {i:06}" for i in range(ITEMS)], codes)
        index.compact()
    return str(path)


def _run(words: list[str], **environment: str) -> tuple[float, float]:
    """Processor and wall seconds of a new interpreter."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *words], env=os.environ | environment, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def plain_install_bytes() -> int:
    """Of the files of kenthash and of all that `pip install kenthash` brings, as they are installed here."""
    return sum(_bytes(package) for package in _closure("kenthash", {}).values())


def _closure(name: str, met: dict[str, Distribution]) -> dict[str, Distribution]:
    """A distribution and what it requires without extras, by name. What is not installed here counts nothing."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key not in met:
        try:
            met[key] = distribution(name)
        except PackageNotFoundError:
            return met
        for required in _required(met[key]):
            _closure(required, met)
    return met


def _required(package: Distribution) -> Iterator[str]:
    from packaging.requirements import Requirement

    for line in package.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def _bytes(package: Distribution) -> int:
    paths = {Path(str(file.locate())) for file in package.files or ()}
    if package.name == "kenthash":  # where it is installed for development, its files are elsewhere
        paths |= set(Path(__file__).parents[1].rglob("*.*"))
    return sum(path.stat().st_size for path in paths if path.is_file())
