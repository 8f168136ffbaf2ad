"""Encoders and models on their way to other machines: the files of a folder, unpacked into the user's cache there.

So the nodes of a cluster need neither the models nor a file system that they share with this machine.
"""

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kenthash.files import alone, cache_folder, reading


@dataclass(frozen=True)
class ShippedFolder:
    kind: str  # the folder of the cache in which it is unpacked
    name: str
    files: dict[str, bytes]  # content by name below the folder

    @classmethod
    def read(
        cls, folder: Path, names: Iterable[str], kind: str, name: str = "", added: dict[str, bytes] | None = None
    ) -> Self:
        """The files `names` of a folder, and others `added`. Without a name, it is called by the digest of them all."""
        files = dict(added or {})
        for part in sorted(names):
            with reading(folder / part):
                files[part] = (folder / part).read_bytes()
        return cls(kind, name or _content_name(files), files)

    def unpack(self) -> Path:
        """The folder on this machine, which appears whole; what is there already is used."""
        folder = cache_folder() / self.kind / self.name
        if folder.is_dir():
            return folder
        with alone(folder.parent):
            partial = folder.with_name(f"{folder.name}.partial")
            if not folder.is_dir():  # of a process that we waited for
                shutil.rmtree(partial, ignore_errors=True)
                for name, content in self.files.items():
                    (partial / name).parent.mkdir(parents=True, exist_ok=True)
                    (partial / name).write_bytes(content)
                partial.rename(folder)
        return folder


def _content_name(files: dict[str, bytes]) -> str:
    total = hashlib.sha256()
    for name, content in files.items():
        total.update(f"{name}\n{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()[:32]
