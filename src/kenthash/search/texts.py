"""The codes of texts: an item is found by its texts once each of them has a code, besides the code of its picture.

They are kept in the index: in a table of the SQLite file, in a second table of PostgreSQL, or in a second collection of
Milvus. When an item is replaced or removed, the codes of its texts are deleted with it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from kenthash.codes import Codes
from kenthash.progress import bar
from kenthash.search.engine import Item, coded_texts
from kenthash.search.index import TEXTS, Index

BATCH = 500  # items per step; the codes of their texts are committed together


def add_texts(index: Index, encode: Callable[[Sequence[str]], Codes]) -> int:
    """Make codes of all texts that have none yet, of at most `MAX_TEXTS` per item. Returns the number of texts encoded.

    From then on `index add` and the service make the codes of texts that they add. After an interruption the same call
    continues where it stopped.

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
            missing = [
                item for item, count in zip(items, counts, strict=True) if count < len(coded_texts(item.metadata))
            ]
            encoded += _encode_texts_of(index, missing, encode)
            seen += sum(counts)
            after = ids[-1]
            progress.update(len(ids))
    if encoded or seen:
        index.note(TEXTS, "complete")
    return encoded


def _encode_texts_of(index: Index, items: list[Item], encode: Callable[[Sequence[str]], Codes]) -> int:
    texts = [coded_texts(item.metadata) for item in items]
    all_texts = [text for item_texts in texts for text in item_texts]
    if all_texts:
        ends = np.cumsum([len(item_texts) for item_texts in texts])
        index.put_texts(items, np.split(encode(all_texts), ends[:-1]))
    return len(all_texts)
