"""What starting costs: one search from the shell in a fresh process, the import, and the size of an installation.

Beside it, as far as it can be measured, rclip, which also searches a folder of pictures by words, with CLIP on
onnxruntime.
"""

import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
from PIL import Image

from kenthash.encoders.clip import cached_clip
from kenthash.errors import KenthashError
from kenthash.model.config import read_config
from kenthash.model.pretrained import find_model
from kenthash.search import Index
from kenthash.search.models import assign_model

ITEMS = 20_000
WORDS = "two dogs chasing a kite on the beach"


def bench_start(index: str | None = None, rounds: int = 5, rclip: Path | None = None) -> dict[str, float | str]:
    """Seconds and megabytes, each the least of some rounds. Without an index, one of random codes is made, of the
    pretrained model `clip`. `rclip` is that command, in an environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        index = index or _index(Path(folder))
        search = ["-m", "kenthash", "search", WORDS, "--index", index, "--json"]
        _run(search)  # which may have an encoder to export
        first = min(_run(search, NUMBA_CACHE_DIR=tempfile.mkdtemp(dir=folder))[1] for _ in range(rounds))
        cold = [_run(search) for _ in range(rounds)]
        imports = [_run(["-c", "import kenthash"]) for _ in range(rounds)]
        bare = [_run(["-c", ""]) for _ in range(rounds)]
        version = [_run(["-m", "kenthash", "--version"]) for _ in range(rounds)]
        peer = {} if rclip is None else measure_rclip(rclip, Path(folder), rounds)
    figures = {
        "cold search, processor s": min(cpu for cpu, _ in cold),
        "cold search, wall s": min(wall for _, wall in cold),
        "first search, nothing compiled yet, wall s": first,
        "import kenthash, processor s": min(cpu for cpu, _ in imports) - min(cpu for cpu, _ in bare),
        "--version, processor s": min(cpu for cpu, _ in version),
        "plain install, MB": plain_install_bytes() / 1e6,
    }
    if encoder := cached_clip():
        figures["the encoder `clip`, MB"] = sum(file.stat().st_size for file in encoder.iterdir()) / 1e6
    return figures | peer


def measure_rclip(command: Path, folder: Path, rounds: int) -> dict[str, float | str]:
    """What can be measured of rclip: a search only where it can fetch its weights."""
    command = command.absolute()  # it is run in other folders
    python = command.with_name("python")
    size = "from importlib.metadata import distributions as d; print(sum(f.locate().stat().st_size for p in d() "
    size += "if p.name not in ('pip', 'setuptools') for f in p.files or () if f.locate().is_file()))"
    photos = folder / "photos"
    photos.mkdir()
    Image.effect_noise((224, 224), 50).convert("RGB").save(photos / "noise.jpg")
    loads = "import onnxruntime, rclip.main, rclip.model, rclip.utils.tokenizer"
    search = [str(command), WORDS]
    completed = subprocess.run(search, cwd=photos, capture_output=True, text=True)
    figures: dict[str, float | str] = {
        "rclip: --version, processor s": min(_cost([str(command), "--version"], None, {})[0] for _ in range(rounds)),
        "rclip: the modules of a search, without its weights, processor s": min(
            _cost([str(python), "-c", loads], None, {})[0] for _ in range(rounds)
        ),
        "rclip: install without its weights, MB": int(subprocess.check_output([str(python), "-c", size])) / 1e6,
    }
    if completed.returncode:
        reason = (completed.stderr.strip().splitlines() or ["it does not say why"])[-1][:100]
        return figures | {"rclip: cold search": f"not measured: it cannot fetch its weights here ({reason})"}
    return figures | {"rclip: cold search, processor s": min(_cost(search, photos, {})[0] for _ in range(rounds))}


def _index(folder: Path) -> str:
    """Random codes take as long as any."""
    model = find_model("clip")
    bits = read_config(model / "config.json").bits
    codes = np.random.default_rng(0).integers(0, 256, (ITEMS, bits // 8), np.uint8)
    path = folder / "bench.kh"
    with Index.create(path, bits) as index:
        assign_model(index, model)
        index.add([f"item {i:06}" for i in range(ITEMS)], codes)
        index.compact()
    return str(path)


def _run(words: list[str], **environment: str) -> tuple[float, float]:
    """Processor and wall seconds of a new interpreter."""
    return _cost([sys.executable, *words], None, environment)


def _cost(command: list[str], folder: Path | None, environment: dict[str, str]) -> tuple[float, float]:
    """Processor and wall seconds of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    completed = subprocess.run(command, cwd=folder, env=os.environ | environment, stdout=subprocess.DEVNULL)
    if completed.returncode:
        raise KenthashError(f"what was to be measured failed: {shlex.join(command)}")
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
