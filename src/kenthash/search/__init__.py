"""Search by code.

- `index` is what users call, `engine` the interface of all engines, `filters` the filter language. `answer` answers a
  query as a person puts it, by codes and `words`, with relevance.
- The local engine is `local`. It keeps items in SQLite (`store`, `schema`, `idorder`) and codes in a mapped file
  (`codefile`), and searches them by `scan` or `mih`, compiled where numba is installed (`kernels`).
- The other engines are `milvus` (with `milvus_requests`) and `postgres`; `addresses` parses their addresses.
- An index is filled from a `folder`, from `packs`, or with exported codes (`export`). `texts` makes the codes of texts,
  and `models` keeps an index and its model together. `local.maintenance` checks, repairs and copies an index in a file.
"""

from kenthash.search.engine import Hit, Hits, Item, Stats
from kenthash.search.index import Index
from kenthash.search.texts import add_texts

__all__ = ["Hit", "Hits", "Index", "Item", "Stats", "add_texts"]
