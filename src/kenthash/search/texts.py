"""The codes of texts: an item is found by its texts once each has a code of its own, beside that of its picture.

They stand in the index itself: in a table of the SQLite file, in a table of PostgreSQL beside that of the items, or in
a second collection of Milvus. Whoever replaces or removes an item drops the codes of its texts with it, so that none is
ever of a text that has gone.
"""

from collections.abc import Callable, Sequence

import numpy as np

from kenthash.codes import Codes
from kenthash.progress import bar
from kenthash.search.engine import Item, coded_texts
from kenthash.search.index import TEXTS, Index

BATCH = 500  # items looked at at a time; the codes of their texts are committed together


def add_texts(index: Index, encode: Callable[[Sequence[str]], Codes]) -> int:
    """Make codes of all texts that have none yet, for at most `MAX_TEXTS` of an item. The number of texts encoded.

    From then on the index is one with texts: `index add` and the service make the codes for what they add. Interrupted,
    the same call goes on where it was.

    Example (codes of 8 bits: the length of a text):

        >>> from tempfile import TemporaryDirectory
        >>> def encode(texts):
        ...     return np.uint8([[len(text)] for text in texts])
        >>> with TemporaryDirectory() as folder, Index.create(f"{folder}/pictures.kh", bits=8) as index:
        ...     metadata = [{"texts": ["a dog", "a brown dog"]}, {"text": "one cat"}]
        ...     index.add(["a.jpg", "b.jpg"], np.uint8([[0], [0]]), metadata)
        ...     encoded = add_texts(index, encode)
        ...     (hits,) = index.search_texts(encode(["a red kite!"]))
        >>> encoded, hits.ids, hits.distances.tolist(), hits.texts
        (3, ['a.jpg', 'b.jpg'], [0, 2], ['a brown dog', 'one cat'])
    """
    if not index.keeps_texts():
        index.note(TEXTS, "begun")
    encoded, seen, after = 0, 0, ""
    with bar(index.stats().items, "index", "texts of items") as progress:
        while ids := index.list_ids(after, BATCH):
            items = [item for item in index.get(ids) if item is not None]
            counts = index.count_texts([item.id for item in items])
            todo = [item for item, count in zip(items, counts, strict=True) if count < len(coded_texts(item.metadata))]
            encoded += _encode(index, todo, encode)
            seen += sum(counts)
            after = ids[-1]
            progress.update(len(ids))
    if encoded or seen:
        index.note(TEXTS, "complete")
    return encoded


def _encode(index: Index, items: list[Item], encode: Callable[[Sequence[str]], Codes]) -> int:
    texts = [coded_texts(item.metadata) for item in items]
    together = [text for few in texts for text in few]
    if together:
        ends = np.cumsum([len(few) for few in texts])
        index.put_texts(items, np.split(encode(together), ends[:-1]))
    return len(together)
