"""Text and picture search in 8 bytes an item: cross-modal hashing with Kent distribution proxies."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kenthash.model import Hasher
    from kenthash.search import Index

__all__ = ["Hasher", "Index", "__version__"]
__version__ = version("kenthash")


def __getattr__(name: str) -> Any:
    # Loaded when first used: `import kenthash` and `kenthash --help` should not wait for PyTorch.
    if name == "Hasher":
        from kenthash.model import Hasher

        return Hasher
    if name == "Index":
        from kenthash.search import Index

        return Index
    raise AttributeError(f"module 'kenthash' has no attribute {name!r}")
