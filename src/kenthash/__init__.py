"""Text and picture search in 8 bytes an item: cross-modal hashing with Kent distribution proxies."""

from importlib.metadata import version

__version__ = version("kenthash")
