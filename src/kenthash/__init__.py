"""Text and picture search in 8 bytes an item: cross-modal hashing with Kent distribution proxies."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kenthash.model import Hasher

__all__ = ["Hasher", "__version__"]
__version__ = version("kenthash")


def __getattr__(name: str) -> Any:
    # Loaded when first used: `import kenthash` and `kenthash --help` should not wait for PyTorch.
    if name == "Hasher":
        from kenthash.model import Hasher

        return Hasher
    raise AttributeError(f"module 'kenthash' has no attribute {name!r}")
