"""Build the package and try it where there is no source tree: `make package`, `make extras`.

    python scripts/package.py           sdist and wheel into dist/, then three pictures indexed and searched
    python scripts/package.py --extras  each extra installed by itself into a fresh environment, and imported

Left out are the extras `docs` and `dev`. They are for work on the source tree: `make docs` and `make test` use them.

The wheel is built from the sdist, so that both are whole. The pictures are encoded by `clip`, whose encoder comes from
the user's cache, or by the package index into it.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
UV = [sys.executable, "-m", "uv"]
PICTURES = """
import sys
from PIL import Image

for colour in ("red", "green", "blue"):
    Image.new("RGB", (300, 200), colour).save(f"{sys.argv[1]}/{colour}.png")
"""


def main() -> None:
    build()
    (wheel,) = DIST.glob("*.whl")
    if "--extras" in sys.argv[1:]:
        for extra, packages in extras().items():
            with tempfile.TemporaryDirectory() as folder:
                python = install(Path(folder), f"kenthash[{extra}] @ {wheel.as_uri()}")
                code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
                run(python, "-c", code, *packages)
                print(f"{extra}: {', '.join(packages)}", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        smoke(Path(folder), wheel)


def build() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    run(*UV, "build", "--quiet", "--out-dir", str(DIST), str(ROOT))
    for file in sorted(DIST.glob("kenthash-*")):
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB")


def smoke(folder: Path, wheel: Path) -> None:
    python = install(folder, f"kenthash @ {wheel.as_uri()}")
    photos = folder / "photos"
    photos.mkdir()
    run(python, "-c", PICTURES, str(photos))
    where = run(python, "-c", "import kenthash; print(kenthash.__file__)", cwd=photos)
    assert str(ROOT) not in where, where
    command = str(Path(python).parent / "kenthash")
    print(run(command, "--version").strip())
    report = json.loads(run(command, "index", "add", ".", "--json", cwd=photos))
    assert report["added"] == 3 and not report["skipped"], report
    for query in (["a red wall"], ["--image", "red.png"]):
        hits = json.loads(run(command, "search", *query, "--json", cwd=photos))
        assert {hit["id"] for hit in hits} == {"red.png", "green.png", "blue.png"}, hits
    assert hits[0]["id"] == "red.png" and hits[0]["distance"] == 0, hits
    print(run(command, "search", "--image", "red.png", cwd=photos), end="")


def install(folder: Path, *requirements: str) -> str:
    """Install into a fresh environment; the path of its Python."""
    run(*UV, "venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
    python = str(folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    run(*UV, "pip", "install", "--quiet", "--python", python, "-c", str(ROOT / "constraints.txt"), *requirements)
    return python


def extras() -> dict[str, tuple[str, ...]]:
    """The packages that each extra brings, as kenthash itself knows them."""
    spec = importlib.util.spec_from_file_location("errors", ROOT / "src" / "kenthash" / "errors.py")
    assert spec is not None and spec.loader is not None
    errors = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(errors)
    known: dict[str, tuple[str, ...]] = errors.EXTRAS
    return {extra: tuple(name for name in names if name != "torchvision") for extra, names in known.items()}


def run(*words: str, cwd: Path | None = None) -> str:
    # PYTHONPATH would bring the source tree back; uv is found beside the Python that runs this.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    completed = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
    if completed.returncode:
        sys.exit(f"{' '.join(words)}: exit code {completed.returncode}\n{completed.stdout}{completed.stderr}")
    return completed.stdout


if __name__ == "__main__":
    main()
