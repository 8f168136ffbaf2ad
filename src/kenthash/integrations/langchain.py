"""A vector store of LangChain that keeps texts and pictures as codes:

    from kenthash import Hasher, Index
    from kenthash.integrations.langchain import HasherEmbeddings, KenthashStore

    store = KenthashStore(Index.open("photos.kh"), HasherEmbeddings(Hasher.from_pretrained("clip")))
    store.similarity_search("two dogs and a kite", k=5, filter="year >= 2020")

The embeddings are real-valued outputs. What is added is kept by their signs; a query is compared as it is.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from kenthash.codes import pack
from kenthash.errors import UsageError
from kenthash.model.hasher import Hasher
from kenthash.search import Hits, Index
from kenthash.search.engine import Metadata, texts_of

TEXT = "text"  # the key of metadata that holds the content of a document
PICTURE = "picture"  # that of a picture: its path


class HasherEmbeddings(Embeddings):  # type: ignore[misc]
    """The outputs of a hasher before signing, as LangChain takes them."""

    def __init__(self, hasher: Hasher) -> None:
        self.hasher = hasher

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [list(map(float, row)) for row in self.hasher.query_texts(texts)]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def embed_images(self, uris: Sequence[str | Path]) -> list[list[float]]:
        """Of picture files."""
        return [list(map(float, row)) for row in self.hasher.query_pictures(list(uris))]


class KenthashStore(VectorStore):  # type: ignore[misc]
    """Documents in an index on any engine. `filter` is kenthash's filter language, on the metadata of documents."""

    def __init__(self, index: Index, embedding: Embeddings) -> None:
        """`embedding` gives as many numbers as the index takes bits: `HasherEmbeddings`, or any other one."""
        self.index, self._embedding = index, embedding

    @property
    def embeddings(self) -> Embeddings:
        return self._embedding

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts, replacing those whose id exists; without `ids` they get new ones."""
        contents = list(texts)
        return self._add(self._embedding.embed_documents(contents), TEXT, contents, metadatas, ids)

    def add_images(
        self,
        uris: Sequence[str | Path],
        metadatas: list[dict[str, Any]] | None = None,
        ids: list[str] | None = None,
    ) -> list[str]:
        """Add picture files. As documents they have no content; their path is in the metadata as `picture`."""
        return self._add(self._picture_embeddings(uris), PICTURE, [str(uri) for uri in uris], metadatas, ids)

    def similarity_search(self, query: str, k: int = 4, *, filter: str | None = None, **kwargs: Any) -> list[Document]:
        return self._documents(self._search(self._embedding.embed_query(query), k, filter))

    def similarity_search_with_score(
        self, query: str, k: int = 4, *, filter: str | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Documents with the share of the query that they differ in: 0 is the same code, 1 the opposite one."""
        hits = self._search(self._embedding.embed_query(query), k, filter)
        return list(zip(self._documents(hits), _shares(hits), strict=True))

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, *, filter: str | None = None, **kwargs: Any
    ) -> list[Document]:
        return self._documents(self._search(embedding, k, filter))

    def similarity_search_by_image(self, uri: str | Path, k: int = 4, *, filter: str | None = None) -> list[Document]:
        return self._documents(self._search(self._picture_embeddings([uri])[0], k, filter))

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        items = self.index.get(list(ids))
        return [_document(item.id, item.metadata) for item in items if item is not None]

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        if ids is None:
            raise UsageError("delete: give the ids of what is to be removed")
        self.index.remove(ids)
        return True

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        index: Index | str | Path | None = None,
        **kwargs: Any,
    ) -> Self:
        """A store of these texts, in an index, or in the file or address of one, which is created where it is
        missing."""
        if index is None:
            raise UsageError("from_texts: say with index= where the codes are kept, such as index='texts.kh'")
        if not isinstance(index, Index):
            index = Index.open_or_create(index, len(embedding.embed_query("")))
        store = cls(index, embedding)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def _add(
        self,
        outputs: list[list[float]],
        key: str,
        contents: list[str],
        metadatas: list[dict[str, Any]] | None,
        ids: list[str] | None,
    ) -> list[str]:
        names = ids if ids is not None else [str(uuid.uuid4()) for _ in contents]
        entries = metadatas if metadatas is not None else [{} for _ in contents]
        if not len(names) == len(contents) == len(entries):
            raise UsageError(
                f"{len(contents)} documents, {len(names)} ids and {len(entries)} metadatas: give the same number"
            )
        if contents:
            metadata = [{**entry, key: content} for entry, content in zip(entries, contents, strict=True)]
            self.index.upsert(names, pack(np.array(outputs, np.float32)), metadata)
        return list(names)

    def _picture_embeddings(self, uris: Sequence[str | Path]) -> list[list[float]]:
        if not isinstance(self._embedding, HasherEmbeddings):
            raise UsageError(f"{type(self._embedding).__name__}: embeds no pictures: use HasherEmbeddings")
        return self._embedding.embed_images(uris)

    def _search(self, outputs: list[float], k: int, filter: str | None) -> Hits:
        return self.index.search(np.array(outputs, np.float32), k, filter=filter)[0]

    def _documents(self, hits: Hits) -> list[Document]:
        return [_document(hit.id, hit.metadata) for hit in hits]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda share: 1.0 - share


def _shares(hits: Hits) -> list[float]:
    return [float(distance) / max(hits.full_distance, 1) for distance in hits.distances]


def _document(id: str, metadata: Metadata) -> Document:
    texts = texts_of(metadata)
    other_metadata = {key: value for key, value in metadata.items() if key != TEXT}
    return Document(page_content=texts[0] if texts else "", metadata=other_metadata, id=id)
