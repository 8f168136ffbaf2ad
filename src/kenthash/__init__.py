"""Text and picture search with 8 bytes per item: cross-modal hashing with Kent distribution proxies.

import kenthash
for hit in kenthash.search_folder("photos", "two dogs and a kite"):
    print(hit.path, hit.distance)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kenthash.api import FolderHit, search_folder, train
    from kenthash.data.pictures import BadPicture
    from kenthash.errors import DataError, DuplicateId, KenthashError, MissingExtra, UsageError
    from kenthash.model import Hasher
    from kenthash.search import Hits, Index, Item
    from kenthash.search.engine import NoSuchIndex
    from kenthash.training.estimator import KentHasher

    __version__: str

__all__ = [
    "BadPicture",
    "DataError",
    "DuplicateId",
    "FolderHit",
    "Hasher",
    "Hits",
    "Index",
    "Item",
    "KentHasher",
    "KenthashError",
    "MissingExtra",
    "NoSuchIndex",
    "UsageError",
    "__version__",
    "search_folder",
    "train",
]

# Loaded when first used: `import kenthash` and `kenthash --help` should not wait for numpy and onnxruntime.
_MODULES = {
    "BadPicture": "kenthash.data.pictures",
    "DataError": "kenthash.errors",
    "DuplicateId": "kenthash.errors",
    "FolderHit": "kenthash.api",
    "Hasher": "kenthash.model",
    "Hits": "kenthash.search",
    "Index": "kenthash.search",
    "Item": "kenthash.search",
    "KentHasher": "kenthash.training.estimator",
    "KenthashError": "kenthash.errors",
    "MissingExtra": "kenthash.errors",
    "NoSuchIndex": "kenthash.search.engine",
    "UsageError": "kenthash.errors",
    "search_folder": "kenthash.api",
    "train": "kenthash.api",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        try:
            return getattr(import_module(_MODULES[name]), name)
        except ModuleNotFoundError as error:  # KentHasher needs the extra `train`
            from kenthash.errors import missing_extra

            raise missing_extra(error) or error from error
    if name == "__version__":
        from importlib.metadata import version

        return version("kenthash")
    raise AttributeError(f"module 'kenthash' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
