"""Search by code: `Index`, the store that keeps it, the kernels, and the engines behind one small interface."""

from kenthash.search.engine import Hits, Item, Stats
from kenthash.search.index import Index
from kenthash.search.texts import add_texts

__all__ = ["Hits", "Index", "Item", "Stats", "add_texts"]
