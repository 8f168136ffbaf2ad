"""Text and picture search with 8 bytes per item: cross-modal hashing with Kent distribution proxies."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kenthash.model import Hasher
    from kenthash.search import Index

    __version__: str

__all__ = ["Hasher", "Index", "__version__"]


def __getattr__(name: str) -> Any:
    # Loaded when first used: `import kenthash` and `kenthash --help` should not wait for numpy and onnxruntime.
    if name == "Hasher":
        from kenthash.model import Hasher

        return Hasher
    if name == "Index":
        from kenthash.search import Index

        return Index
    if name == "__version__":
        from importlib.metadata import version

        return version("kenthash")
    raise AttributeError(f"module 'kenthash' has no attribute {name!r}")
