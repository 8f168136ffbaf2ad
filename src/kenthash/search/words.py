"""Search by codes and by words at once.

The rule: items that have all the words of the query in the names of their file and folders, in their texts or in their
labels come first, the nearest code first; then all others, the nearest code first. So a name that somebody remembers is
always found, and a sentence, whose words hardly ever all occur, is found by its codes. Words that say nothing by
themselves, such as "a", "of" and "my", need not occur, unless the query has no others.

Only indexes in a file have words (see `local.fulltext`); on Milvus and PostgreSQL a search goes by codes alone.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kenthash.search.engine import Hits, Item
from kenthash.search.filters import Filter, matches
from kenthash.search.index import Index, Outputs
from kenthash.search.queries import real_valued

MOST = 1000  # items that are looked at for their words
FUNCTION_WORDS = frozenset((
    "a", "an", "the", "this", "that", "these", "those", "some", "any", "of", "in", "on", "at", "by", "to", "from",
    "for", "with", "and", "or", "as", "is", "are", "was", "were", "be", "it", "its", "there", "i", "me", "my", "we",
    "our", "you", "your", "he", "him", "his", "she", "her", "they", "them", "their",
))  # fmt: skip


def search_with_words(
    index: Index, text: str, query: Outputs, k: int = 10, radius: int | None = None, filter: Filter | None = None
) -> Hits:
    """The hits of a text and of its outputs [1, bits]; `Hits.named` is the number of those with its words."""
    (hits,) = index.search(query, k, radius, filter)
    ids = index.match_words(" ".join(telling_words(text)), MOST)
    items = [item for item in index.get(ids) if item is not None] if ids else []
    if filter is not None:
        items = [item for item in items if matches(filter, item.metadata)]
    if not items:
        return hits
    named_hits = _as_hits(items, query, hits)
    if radius is not None:
        named_hits = some_hits(named_hits, np.flatnonzero(_differing(named_hits) <= radius).tolist())
    named_hits = some_hits(named_hits, np.argsort(named_hits.distances, kind="stable")[:k].tolist())
    taken = set(named_hits.ids)
    others = some_hits(hits, [i for i, id in enumerate(hits.ids) if id not in taken][: k - len(named_hits)])
    assert named_hits.codes is not None and others.codes is not None
    return replace(
        hits,
        ids=named_hits.ids + others.ids,
        distances=np.concatenate([named_hits.distances, others.distances]),
        metadata=named_hits.metadata + others.metadata,
        codes=np.concatenate([named_hits.codes, others.codes]),
        differing=np.concatenate([_differing(named_hits), _differing(others)]),
        named=len(named_hits),
    )


def telling_words(text: str) -> list[str]:
    """The words of a text without function words, unless there are no others.

    Example:

        >>> telling_words("The beach-trip of my_dog"), telling_words("to be")
        (['beach', 'trip', 'dog'], ['to', 'be'])
    """
    words = re.findall(r"[^\W_]+", text)
    return [word for word in words if word.casefold() not in FUNCTION_WORDS] or words


def _as_hits(items: list[Item], query: Outputs, hits: Hits) -> Hits:
    ordered = sorted(items, key=lambda item: item.id)
    codes = np.stack([item.code for item in ordered])
    weighted_query = real_valued(query)
    return replace(
        hits,
        ids=[item.id for item in ordered],
        distances=weighted_query.distances(0, codes),
        metadata=[item.metadata for item in ordered],
        codes=codes,
        differing=np.bitwise_count(codes ^ weighted_query.codes).sum(axis=1, dtype=np.int64),
    )


def some_hits(hits: Hits, places: Sequence[int]) -> Hits:
    """Those at some places, which ascend where hits were found by their words."""
    rows = np.array(places, np.intp)
    return replace(
        hits,
        ids=[hits.ids[i] for i in places],
        distances=hits.distances[rows],
        metadata=[hits.metadata[i] for i in places],
        codes=None if hits.codes is None else hits.codes[rows],
        texts=None if hits.texts is None else [hits.texts[i] for i in places],
        differing=_differing(hits)[rows],
        named=sum(i < hits.named for i in places),
    )


def _differing(hits: Hits) -> NDArray[np.int64]:
    assert hits.differing is not None
    return hits.differing
