"""A query as a person puts it, and its answer: the one way in which commands, service, `search_folder` and assistants
search.

A query is words, a picture or an item of the index. Words are looked for among the codes and, where the index has them,
among names, texts and labels (see `words`). More words can be added, which count as much as the query itself, and taken
away, which counts half as much (`codes.combine`).

A calibrated model tells the relevance of each hit: how often hits like it are right. Queries of a single part alone
were calibrated; the hits of others have no relevance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import combine, unpack
from kenthash.errors import UsageError
from kenthash.search.engine import Hits, Metadata
from kenthash.search.filters import Filter, parse
from kenthash.search.index import MAX_K, Index
from kenthash.search.queries import WITHOUT
from kenthash.search.words import search_with_words, some_hits

CLOSE = 0.5  # relevance: below it a hit is more often wrong than right


class NoRelevance(UsageError):
    """A least relevance was given to a search whose hits have none."""


class Judge(Protocol):
    """What of a model's `Relevance` is needed."""

    def of_hits(
        self,
        query: NDArray[Any],
        distances: NDArray[Any],
        full_distance: int,
        items: int,
        query_kind: Literal["words", "picture"],
    ) -> NDArray[np.float64] | None: ...


@dataclass(frozen=True)
class Query:
    first: NDArray[Any]  # real-valued outputs [bits], or the code [bits / 8] of an item
    words: str | None = None  # what `first` was made of, if words
    known: bool = True  # whether the model knows any of the words; if not, no hit of their code is relevant
    id: str | None = None  # the item that `first` is the code of, which is not among its own hits
    plus: Sequence[NDArray[Any]] = ()  # real-valued outputs [bits] of words to add
    without: Sequence[NDArray[Any]] = ()  # and of words to take away

    @property
    def is_combined(self) -> bool:
        return bool(len(self.plus) or len(self.without))

    def outputs(self) -> NDArray[Any]:
        """One query, as `Index.search` takes it: real-valued [1, bits], or the code [1, bits / 8] of an item alone."""
        if not self.is_combined:
            return self.first[None]
        first = unpack(self.first[None])[0] if self.first.dtype == np.uint8 else self.first
        weights = [1.0] * (1 + len(self.plus)) + [-WITHOUT] * len(self.without)
        return combine(np.array([first, *self.plus, *self.without], np.float32), weights)


class ScoredHit(NamedTuple):
    """One hit of an `Answer`."""

    id: str
    distance: int  # the number of bits that differ
    weighted: float  # the share of the bits, as they count, that differ
    relevance: float | None
    by_words: bool
    metadata: Metadata


@dataclass(frozen=True)
class Answer:
    """Iterating gives each hit as a `ScoredHit`."""

    hits: Hits  # the first `Hits.named` of them were found by their words
    relevance: NDArray[np.float64] | None  # of each hit, from 0 to 1; None where there is none
    nearest: tuple[str, float] | None = None  # its id and relevance, where no item is relevant enough

    @property
    def nothing_is_close(self) -> bool:
        """Whether all hits are more likely wrong than right; never where there is no relevance, or they have the words.
        There is always a nearest item: it must not look like a find where it is none."""
        return self.relevance is not None and not self.hits.named and bool((self.relevance < CLOSE).all())

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[ScoredHit]:
        hits = self.hits
        assert hits.differing is not None
        weighted = (hits.distances / max(hits.full_distance, 1)).tolist()
        relevance = [None] * len(hits) if self.relevance is None else self.relevance.tolist()
        by_words = (place < hits.named for place in range(len(hits)))
        return map(ScoredHit, hits.ids, hits.differing.tolist(), weighted, relevance, by_words, hits.metadata)


def answer_query(
    index: Index,
    query: Query,
    k: int = 10,
    radius: int | None = None,
    filter: Filter | str | None = None,
    judge: Judge | None = None,
    min_relevance: float = 0.0,
    texts: bool = False,
    items: int | None = None,
) -> Answer:
    """The k hits of a query: those with its words first, then by ascending distance, then by id.

    `judge` (`Hasher.relevance`) tells the relevance. Hits below `min_relevance`, from 0 to 1, are left out unless they
    have the words. `texts` compares the codes of texts instead of those of pictures (see `Index.search_texts`), without
    words and relevance. `items` is the number of items in the index, where it is known.

    Example (of codes of 8 bits; the file name has the words):

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, Index.create(f"{folder}/pictures.kh", bits=8) as index:
        ...     index.add(["a.jpg", "dog 1.jpg"], np.uint8([[0b1111], [0b0000]]))
        ...     index.update_words()
        ...     outputs = np.array([1, 1, 1, 1, -1, -1, -1, -1.0])
        ...     (by_words, by_code) = (answer_query(index, Query(outputs, words)) for words in ("a dog", None))
        >>> by_words.hits.ids, by_words.hits.named, by_code.hits.ids, by_code.hits.named
        (['dog 1.jpg', 'a.jpg'], 1, ['a.jpg', 'dog 1.jpg'], 0)
    """
    if not 0 <= min_relevance <= 1:
        raise UsageError(f"min-relevance {min_relevance:g}: must be from 0 to 1")
    if min_relevance and query.is_combined:
        raise NoRelevance(
            "min-relevance needs a single query: with words that are added or taken away hits have no relevance"
        )
    if min_relevance and texts:
        raise NoRelevance("min-relevance is for searches among pictures: texts have no relevance")
    condition = parse(filter) if isinstance(filter, str) else filter
    outputs, most = query.outputs(), min(k + (query.id is not None), MAX_K)
    if texts:
        (hits,) = index.search_texts(outputs, most, radius, condition)
    elif query.words is not None:
        hits = search_with_words(index, query.words, outputs, most, radius, condition)
    else:
        (hits,) = index.search(outputs, most, radius, condition)
    if query.id is not None:
        hits = some_hits(hits, [place for place, id in enumerate(hits.ids) if id != query.id][:k])
    relevance = None
    if judge is not None and not texts and not query.is_combined:
        values = unpack(outputs).astype(np.float32) if outputs.dtype == np.uint8 else outputs
        number = index.stats().items if items is None else items
        kind: Literal["words", "picture"] = "picture" if query.words is None else "words"
        relevance = judge.of_hits(values, hits.distances, hits.full_distance, number, kind)
        if relevance is not None and not query.known:
            relevance = np.zeros_like(relevance)
    if not min_relevance:
        return Answer(hits, relevance)
    if relevance is None:
        raise NoRelevance(
            "min-relevance: the model of this index was not calibrated: run `kenthash models calibrate` with photos "
            "that it was not trained on"
        )
    relevant_places = [place for place in range(len(hits)) if place < hits.named or relevance[place] >= min_relevance]
    nearest = (hits.ids[0], float(relevance[0])) if len(hits) and not relevant_places else None
    return Answer(some_hits(hits, relevant_places), relevance[relevant_places], nearest)
